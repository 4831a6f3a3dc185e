"""Changed definitions on a real lake: built beside a stream, swapped in, gone back from, and mended after a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from tailrace import AfterCount, AfterWatermark, Count, Fixed, Max, Pipeline, Sum, minutes
from tailrace.lake.catalog.drift import drift
from tailrace.lake.catalog.events import DefinitionDropped, Notice
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import former_generations, generation_of, generations_beside, go_over
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.lake_errors import FencedError, OtherDefinitionError
from tailrace.lake.schema.owned_tables import contracts
from tailrace.operate import changeover
from tailrace.operate.changeover import ApplyError, apply, rollback
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.stream.log_stream import Tailing
from tailrace.verify.audit import audit
from tests.support.depth import deep
from tests.support.engines.sessions import session
from tests.support.lakes.rides import HOURLY, Case, within

CHANGED = replace(HOURLY, what={"n": Sum("cents"), "dearest": Max("cents")}, where=Fixed(minutes(30)))
"""Other windows, a result of the same name that means something else, one that is gone and a new one."""

MORNING = [
    [("ann", 1, "08:05"), ("bob", 2, "08:10")],
    [("ann", 4, "08:20"), ("ann", 8, "08:40")],
    [("bob", 16, "09:10"), ("zoe", 32, "08:50")],
]
NOON = [("ann", 64, "12:15"), ("bob", 128, "13:00")]


def another(settings: Settings) -> SparkSession:
    """A session of another process, as it were; without generated code, as the fixture `plain`."""
    opened = session(settings)
    opened.conf.set("spark.sql.codegen.wholeStage", "false")
    opened.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    opened.conf.set("spark.sql.shuffle.partitions", "1")
    return opened


def rows(spark: SparkSession, name: str) -> list[tuple[Any, ...]]:
    """The answers without their versions."""
    left_out = {"timing", "generation", "epoch", "pane_index"}
    table = spark.table(name)
    found = table.select(*(column for column in table.columns if column not in left_out)).collect()
    return sorted(tuple(row) for row in found)


def dropped_of(told: list[Notice]) -> list[DefinitionDropped]:
    return [notice for notice in told if isinstance(notice, DefinitionDropped)]


def fresh(case: Case, pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """The answers of a definition that was streamed from the start, under a name of its own."""
    one = replace(pipeline, name=f"fresh_{pipeline.fingerprint}")
    tail = Tailing(case.spark, case.lake, [one])
    tail.run(once=True)
    tail.close()
    return rows(case.spark, one.name)


@contextmanager
def polled(lake: Lake, name: str) -> Iterator[list[tuple[str, ...]]]:
    """What a reader sees that looks at a table over and over: the columns and where each row is from."""
    seen: list[tuple[str, ...]] = []
    done, failed = threading.Event(), list[Exception]()

    def look() -> None:
        while not done.is_set():
            try:
                table = lake.table(name)
                found = table.scan().to_arrow()
                assert found.num_rows
                generations = {str(number) for number in found["generation"].to_pylist()}
                seen.append((*sorted(generations), *found.column_names))
            except Exception as error:
                failed.append(error)
                return

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        done.set()
        reader.join()
    assert not failed


def test_a_changed_definition_takes_over_beside_a_stream_that_lands_and_is_gone_back_from(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    told: list[Notice] = []
    for bundle in MORNING:
        case.land(*bundle)
    landing = Lake(settings, told.append)
    running = Stream(another(settings), landing, [HOURLY], case.source, follow_every=1)
    running.start()
    within(running, lambda: running.folds[0].epoch == 2 and case.lake.head("hourly").number("epoch") == 2)
    before = rows(plain, "hourly")
    beside = threading.Thread(target=lambda: within(running, lambda: dropped_of(told)))
    with polled(case.lake, "hourly") as seen:
        beside.start()
        done = apply(case.lake, CHANGED, reason="half hours")
        assert done.run is not None
        assert (done.run.status, done.run.generation, done.left) == ("committed", 2, 1)
        case.land(*NOON)
        beside.join(300)
    # A reader sees all of the old or all of the new.
    assert {("1" in one, "2" in one, "dearest" in one) for one in seen} == {(True, False, False), (False, True, True)}
    # The stream has dropped that fold, and goes on landing.
    dropped = dropped_of(told)
    assert [(one.definition, one.left) for one in dropped] == [("hourly", 0)]
    assert "generation 2 with another meaning took over" in dropped[0].reason
    within(running, lambda: running.epoch == 3)
    case.land(("zoe", 256, "16:00"))
    within(running, lambda: running.epoch == 4)
    with pytest.raises(OtherDefinitionError, match="tailrace plan"):
        case.stream(HOURLY)
    tail = Tailing(plain, case.lake, [CHANGED])
    tail.run(once=True)
    tail.close()
    assert case.lake.head("hourly__ledger").number("epoch") == 4
    assert rows(plain, "hourly") == fresh(case, CHANGED)
    found = audit(case.lake, CHANGED)
    assert found.ok, found.checks
    assert not [one for contract in contracts(CHANGED) for one in drift(case.lake, contract).differences]
    assert generations_beside(case.lake, "hourly") == []
    # What was, is there for who asks for it.
    old = "SELECT who, window_start, window_end, n, cents, unanswered FROM hourly VERSION AS OF 'generation_1'"
    assert sorted(tuple(row) for row in plain.sql(old).collect()) == before
    # Nothing to do twice.
    assert apply(case.lake, CHANGED).run is None

    gone = rollback(case.lake, HOURLY)
    assert gone.run is not None
    assert (gone.left, gone.run.generation, gone.epoch) == (2, 3, 2)
    assert rows(plain, "hourly") == before
    assert apply(case.lake, HOURLY).run is None
    tail = Tailing(plain, case.lake, [HOURLY])
    tail.run(once=True)
    tail.close()
    assert rows(plain, "hourly") == fresh(case, HOURLY)
    found = audit(case.lake, HOURLY)
    assert found.ok, found.checks
    assert (generation_of(case.lake.table("hourly")), former_generations(case.lake.table("hourly__ledger"))) == (
        3,
        [1, 2],
    )
    running.stop()
    running.close()


@pytest.mark.parametrize(
    ("place", "engine"),
    [
        ("before the ledger", "duckdb"),
        ("after the ledger", "duckdb"),
        pytest.param("after the ledger", "spark", marks=deep),
        ("after both", "duckdb"),
    ],
)
def test_a_swap_that_dies_is_ended_by_whoever_comes_next(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, engine: str
) -> None:
    case = Case(plain, settings.model_copy(update={"engine": engine}), tmp_path / "landing")
    for bundle in MORNING:
        case.land(*bundle)
    case.drain(HOURLY)
    kept = rows(plain, "hourly")

    def dies(*_: Any) -> Any:
        raise KeyboardInterrupt

    def dies_after(work: Callable[..., Any]) -> Callable[..., Any]:
        def both(*given: Any) -> Any:
            work(*given)
            raise KeyboardInterrupt

        return both

    with monkeypatch.context() as patched:
        if place == "before the ledger":
            patched.setattr(changeover, "go_over", dies)
        elif place == "after the ledger":
            patched.setattr(changeover, "go_over", dies_after(go_over))
        else:
            patched.setattr(changeover._Generation, "take_over", dies_after(changeover._Generation.take_over))
        with pytest.raises(KeyboardInterrupt):
            apply(case.lake, CHANGED)
    assert generations_beside(case.lake, "hourly") == [2]
    if place == "before the ledger":
        assert rows(plain, "hourly") == kept
        done = apply(case.lake, CHANGED)
        assert done.run is not None
        assert done.run.generation == 3
        assert done.run.engine == str(done.engine) == f"{engine}: TAILRACE_ENGINE is {engine}"
        assert [run.status for run in Runs(case.lake, CHANGED).all()] == ["started", "gave_way", "committed"]
    else:
        # A stream brings the answers up, an apply as well.
        case.land(*NOON)
        case.drain(CHANGED)
        assert apply(case.lake, CHANGED).run is None
    assert generations_beside(case.lake, "hourly") == []
    if place == "before the ledger":
        case.land(*NOON)
        case.drain(CHANGED)
    assert rows(plain, "hourly") == fresh(case, CHANGED)
    assert audit(case.lake, CHANGED).ok


def test_of_two_that_apply_at_once_the_later_one_goes_on(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    case.land(*MORNING[0])
    case.drain(HOURLY)
    other = replace(CHANGED, where=Fixed(minutes(20)))
    build = changeover._Generation.build

    def overtaken(self: Any, doing: Any) -> None:
        build(self, doing)
        monkeypatch.setattr(changeover._Generation, "build", build)
        assert apply(case.lake, other).gave_way is None

    monkeypatch.setattr(changeover._Generation, "build", overtaken)
    first = apply(case.lake, CHANGED)
    assert first.gave_way is not None
    assert [run.status for run in Runs(case.lake, HOURLY).all()] == ["started", "gave_way", "committed"]
    assert case.lake.head("hourly__ledger").properties["fingerprint"] == other.fingerprint
    assert audit(case.lake, other).ok


def test_a_generation_does_not_take_over_tables_that_were_evolved_while_it_was_built(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    for bundle in MORNING:
        case.land(*bundle)
    case.drain(HOURLY)
    kept, build = rows(plain, "hourly"), changeover._Generation.build

    def evolved(self: Any, doing: Any) -> None:
        build(self, doing)
        with case.lake.table("hourly").update_schema() as update:
            update.add_column("note", StringType())

    with monkeypatch.context() as patched:
        patched.setattr(changeover._Generation, "build", evolved)
        with pytest.raises(ApplyError, match="changed their shape while this was built: apply again"):
            apply(case.lake, CHANGED)
    assert rows(plain, "hourly") == [(*row, None) for row in kept]
    assert [run.status for run in Runs(case.lake, HOURLY).all()] == ["started", "failed"]
    done = apply(case.lake, CHANGED)
    assert done.run is not None
    assert rows(plain, "hourly") == fresh(case, CHANGED)
    assert audit(case.lake, CHANGED).ok


def test_definitions_are_added_and_taken_away_beside_a_stream_that_runs_on(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    told: list[Notice] = []
    case.land(*MORNING[0])
    later = Pipeline(
        name="daily", log=HOURLY.panes, what={"hours": Count()}, where=Fixed(minutes(720)),
        when=AfterWatermark(late=AfterCount(1)),
    )  # fmt: skip
    running = Stream(
        another(settings), Lake(settings, told.append), [HOURLY, later, replace(CHANGED, name="halves")],
        case.source,
    )  # fmt: skip
    running.start()
    within(running, lambda: running.folds[2].epoch == 0)
    with pytest.raises(ApplyError, match="a later stage reads the panes"):
        apply(case.lake, CHANGED)
    # A new one, and one that it takes from the stream.
    tail = Tailing(plain, case.lake, [HOURLY, replace(CHANGED, name="added")])
    tail.run(once=True)
    case.land(*MORNING[1])
    within(running, lambda: len(dropped_of(told)) == 2 and running.folds[0].epoch == 1)
    assert [notice.definition for notice in dropped_of(told)] == ["hourly", "daily"]
    assert case.lake.head("daily__ledger").number("epoch") == 0, "what it had staged of a dropped one is nowhere"
    tail.run(once=True)
    tail.close()
    running.stop()
    running.close()
    assert rows(plain, "added") == rows(plain, "halves")
    assert case.lake.head("hourly__ledger").number("epoch") == 1
    assert audit(case.lake, HOURLY).ok
    # Two whole streams: one stops.
    first = case.stream(HOURLY)
    first.start()
    second = case.stream(HOURLY)
    case.land(*MORNING[2])
    with pytest.raises(FencedError, match="another stream took the lease of rides"):
        first.wait(300)
    first.close()
    second.close()
