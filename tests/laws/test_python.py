"""The `python` execution says what the reference says, whoever wrote the definition's parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tailrace import (
    ApproxDistinct,
    ApproxQuantile,
    Collect,
    Distinct,
    Fixed,
    OwnCombiner,
    OwnWindows,
    Pipeline,
    Quantile,
    TopK,
    minutes,
    seconds,
)
from tailrace.backfill.backfill import backfill
from tailrace.engines.spark.executions import per_key
from tailrace.engines.spark.executions.buckets import split_state
from tailrace.engines.spark.executions.per_key import PerKey
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, duration, instant
from tailrace.model.combiners.basic import Combiner
from tailrace.model.combiners.laws import LawError, obeys
from tailrace.model.samples import examples
from tailrace.model.step.reference import fold
from tailrace.model.step.step import WindowsState, step
from tailrace.model.windows.windows import NOTHING, Window
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.support.cases.few import FEW, few_epochs
from tests.support.cases.strategies import BASE, EVERYTHING, LOG, Told, epochs, pipelines
from tests.support.checks.batch_answers import batch
from tests.support.depth import deep
from tests.support.engines.engine_runs import EngineRuns, OnSparkInPython, for_examples, resting_beyond
from tests.support.engines.spark_runs import bundle_frame, said_by_reference

KEPT = {"top": TopK("value", 2), "labels": Distinct("label"), "all": Collect("price"), "middle": Quantile("value", 0.5)}


def own_parts() -> tuple[Callable[[timedelta, int], OwnWindows], Callable[[], OwnCombiner]]:
    """Parts that are made here, as those of a definition file are, and so travel to the workers by value."""

    @dataclass(frozen=True)
    class Bursts(OwnWindows):
        """Sessions that a record of at least `loud` keeps open for longer."""

        gap: timedelta
        loud: int

        columns = ("value",)
        merges = True

        @property
        def reach(self) -> int:
            return 3 * duration(self.gap)

        def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
            loud = (record.get("value") or 0) >= self.loud
            return [Window(at, at + duration(self.gap) * (3 if loud else 1))]

    @dataclass(frozen=True)
    class Longest(OwnCombiner):
        """The longest label, of those as long the first in the alphabet."""

        column: str = "label"
        state = gives = "string"

        def zero(self) -> Any:
            return None

        def add(self, state: Any, value: Any) -> Any:
            return self.merge(state, value)

        def merge(self, a: Any, b: Any) -> Any:
            return min((one for one in (a, b) if one is not None), key=lambda one: (-len(one), one), default=None)

        def output(self, state: Any) -> Any:
            return state

    return Bursts, Longest


def few_in_python() -> dict[str, Pipeline]:
    """Definitions that have every kind of state between them, and one whose parts are all of its own."""
    bursts, longest = own_parts()
    names = ("fixed_windows_with_a_phase_accumulating", "sessions_that_close_discarding")
    sessions = FEW["sessions_retracting"]
    sketches = {"ways": ApproxDistinct("price"), "median": ApproxQuantile("value", 0.5)}
    own = replace(sessions, what={"longest": longest(), **KEPT, **sketches}, where=bursts(seconds(2), 5))
    return {"sessions": replace(sessions, what=EVERYTHING), "own_parts": own, **{name: FEW[name] for name in names}}


FEW_IN_PYTHON = few_in_python()


@pytest.mark.parametrize("name", FEW_IN_PYTHON)
def test_every_kind_of_state_says_the_same_in_python(plain: SparkSession, name: str) -> None:
    pipeline, made = FEW_IN_PYTHON[name], few_epochs()
    run = fold(pipeline, made)
    expected = said_by_reference(pipeline, run.panes, run.late, run.rejected)
    # Of those with parts of their own alone the windows rest in files: each kind of state is in them, and is not.
    assert OnSparkInPython(plain, 0 if name == "own_parts" else None).said(pipeline, made) == [expected]


@for_examples(spark_in_python=(1, 24, 8))
def test_a_random_definition_with_parts_of_its_own_says_the_same_in_python(
    engine: EngineRuns, data: st.DataObject
) -> None:
    bursts, longest = own_parts()
    pipeline = data.draw(pipelines())
    if data.draw(st.booleans()):
        pipeline = replace(pipeline, where=bursts(seconds(data.draw(st.integers(1, 4))), 5))
    extras: list[Mapping[str, Combiner]] = [{}, {"longest": longest()}, KEPT]
    extra = data.draw(st.sampled_from(extras))
    pipeline = replace(pipeline, what={**pipeline.what, **extra})
    made = data.draw(epochs(pipeline, max_epochs=5))
    assume(sum(len(bundle) for bundle, _ in made) >= 6)
    run = fold(pipeline, made)
    assume(run.panes)
    assert engine.said(pipeline, made) == [said_by_reference(pipeline, run.panes, run.late)]


def test_windows_at_rest_are_seen_by_no_worker_and_their_partitions_do_not_grow_with_the_epochs(
    plain: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, longest = own_parts()
    pipeline = Pipeline(name="resting", log=LOG, key="place", what={"longest": longest()}, where=Fixed(minutes(1)))
    seen, partitions = list[int](), list[int]()

    def watched(*given: Any) -> tuple[DataFrame, DataFrame]:
        touched, resting = split_state(*given)
        seen.append(touched.count())
        return touched, resting

    monkeypatch.setattr(per_key, "split_state", watched)
    monkeypatch.setattr(per_key, "FEW", 0)
    execution = PerKey(plain, pipeline, resting_beyond(plain, pipeline))
    state, reference, start = execution.nothing(), WindowsState(), instant(BASE)
    for epoch in range(6):
        places = [None, *map(str, range(40))] if epoch == 0 else [str(epoch), None, f"new {epoch}"]
        nothing = dict.fromkeys(LOG.columns)
        records = [nothing | {"id": n, "at": BASE, "place": one, "label": "x" * n} for n, one in enumerate(places)]
        # The last epoch closes all windows, whoever has a record.
        clock = Clock(epoch, start + (600_000_000 if epoch == 5 else 0), start + epoch)
        consumed = execution.consume(bundle_frame(plain, pipeline, records, epoch), state)
        stepped = execution.step(state, consumed, clock)
        stepped.rows.collect()
        state.forget()
        state, reference = stepped.state, step(pipeline, reference, records, clock).state
        held = {(row["place"],): row["fresh"] for row in state.windows.collect()}
        assert held == {key: row["fresh"] for key, windows in reference.windows.items() for row in windows.values()}
        assert stepped.state.open() == len(held)
        partitions.append(state.windows.rdd.getNumPartitions())
    assert seen == [0, 2, 2, 2, 2, 45]
    assert len(set(partitions[1:])) == 1


@pytest.mark.parametrize("engine", ["auto", pytest.param("spark", marks=deep)])
def test_L1_a_definition_of_ones_own_is_streamed_backfilled_and_audited(
    spark: SparkSession, settings: Settings, tmp_path: Any, engine: str
) -> None:
    bursts, longest = own_parts()
    log = replace(examples.SCORES, columns={**examples.SCORES.columns, "label": "string"}, disorder=seconds(30))
    built_in = {"best": TopK("value", 3), "labels": Distinct("label")}
    what = {"longest": longest(), **built_in}
    pipelines = [
        Pipeline(name="own_bursts", log=log, key="team", what=what, where=bursts(minutes(1), 7)),
        Pipeline(name="own_minutes", log=log, key="team", what=what, where=Fixed(minutes(1))),
        # All that it has of its own are its windows.
        Pipeline(name="own_windows", log=log, key="team", what=built_in, where=Told(Fixed(minutes(1)))),
    ]
    # The last one is there to take the watermark past the others.
    last = {"team": "b", "value": 1, "at": examples.at("30:00"), "seen": examples.at("30:01")}
    records = [{**one, "label": "x" * (place % 4)} for place, one in enumerate([*examples.records(), last])]
    landing = tmp_path / "landing"
    landing.mkdir()
    for first in range(0, len(records), 4):
        lines = (_line(record) for record in records[first : first + 4])
        (landing / f"{first:02}.jsonl").write_text("".join(lines))
    lake = Lake(settings.model_copy(update={"engine": engine}))
    stream = Stream(spark, lake, pipelines, Files(str(landing), "json", 1))
    stream.start(once=True)
    stream.wait()
    stream.close()
    for pipeline in pipelines:
        found = audit(lake, pipeline)
        assert found.ok, [check for check in found.checks if not check.ok]
        watermark = lake.head(f"{pipeline.name}__ledger").number("watermark")
        until = watermark - pipeline.where.reach
        [done] = backfill(lake, pipeline, instant(examples.NOON), until)
        expected = {
            place: dict(values)
            for place, values in batch(pipeline, records).items()
            if instant(examples.NOON) <= place[1].timestamp < until
        }
        assert done.changed + done.untouched == len(expected)
        rows = spark.sql(
            f"SELECT team, UNIX_MICROS(window_start) AS a, UNIX_MICROS(window_end) AS b, {', '.join(pipeline.what)} "
            f"FROM {pipeline.name} WHERE window_end > '2015-01-01T12:00:00Z'"
        ).collect()
        held = {((r["team"],), Window(r["a"], r["b"])): r.asDict() for r in rows}
        assert expected
        for place, values in expected.items():
            assert {name: held[place][name] for name in values} == values
        assert audit(lake, pipeline).ok


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, default=lambda value: value.isoformat()) + "\n"


@pytest.mark.parametrize("combiner", [ApproxDistinct("value", 16), ApproxQuantile("value", 0.5)], ids=repr)
def test_the_built_in_ones_obey_the_laws(combiner: OwnCombiner) -> None:
    obeys(combiner, [3, 1, 3, 2])
    obeys(combiner, [])


def test_one_that_minds_the_order_is_found_out() -> None:
    @dataclass(frozen=True)
    class Newest(OwnCombiner):
        column: str = "value"

        def zero(self) -> Any:
            return None

        def add(self, state: Any, value: Any) -> Any:
            return value

        def merge(self, a: Any, b: Any) -> Any:
            return a if b is None else b

        def output(self, state: Any) -> Any:
            return state

    with pytest.raises(LawError, match="merge must not mind order"):
        obeys(Newest(), [1, 2])


def test_the_reference_gives_what_their_names_say() -> None:
    records: Iterable[Any] = [
        {"at": examples.at("00:10"), "value": value, "label": label, "price": None}
        for value, label in [(3, "a"), (9, "b"), (None, "a"), (5, None)]
    ]
    pipeline = Pipeline(name="kept", log=LOG, what=KEPT, where=Fixed(minutes(1)))
    (pane,) = fold(pipeline, [(list(records), Clock(0, END_OF_TIME, 0))]).panes
    assert pane.values == {"top": [9, 5], "labels": 2, "all": [], "middle": 5}
