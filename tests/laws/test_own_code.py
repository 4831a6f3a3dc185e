"""A record that custom code cannot put into windows, or combine, is rejected alone, in every execution (X7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import AfterCount, AfterWatermark, AnyOf, OwnCombiner, OwnWindows, Repeat
from tailrace.engines.batch.batch_answers import answering
from tailrace.engines.python.assigned import windows_of_batch
from tailrace.model.base.clock import Clock
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import instant, seconds
from tailrace.model.combiners.basic import Count, Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.step.reference import at_once, fold
from tailrace.model.triggers.guarded import TriggerWarning
from tailrace.model.triggers.trigger import Measure, Moment, Ready, Trigger
from tailrace.model.windows.panes import answers
from tailrace.model.windows.windows import NOTHING, Fixed, Window
from tailrace.testing import BatchError, check_batches
from tests.support.cases.strategies import LOG, bundles, epochs, examples
from tests.support.engines.engine_runs import EngineRuns, OnSpark, for_examples
from tests.support.engines.sessions import in_process
from tests.support.engines.spark_runs import arrow_bundle, said_by_reference


@dataclass(frozen=True)
class Picky(OwnWindows):
    """Windows of five seconds, but for records whose value is 3 to 6: it fails, or gives what is no window."""

    merges: bool = False

    @property
    def reach(self) -> int:
        return 5_000_000 if self.merges else 0

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        strange: dict[int, Any] = {4: [Window(at, at)], 5: "none", 6: [(at, str(at))]}
        value = record["value"]
        if value == 3:
            raise LookupError("no window for three")
        if value in strange:
            return strange[value]  # type: ignore[no-any-return]
        return [Window(at, at + 5_000_000)] if self.merges else Fixed(seconds(5)).assign(at)


@dataclass(frozen=True)
class PickyBatches(Picky):
    """The same windows for many records at once; it fails for batches with one of the strange values."""

    def assign_batch(self, times: Any, records: Any) -> Any:
        if not {3, 4, 5, 6}.isdisjoint(records["value"].to_pylist()):
            raise LookupError("a strange value")
        starts = times - times % 5_000_000
        return starts, starts + 5_000_000


@dataclass(frozen=True)
class Inverse(OwnCombiner):
    """A sum of shares, which a zero has none of."""

    column: str | None
    state: str = "bigint"
    gives: str = "bigint"

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state + 60 // value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def output(self, state: int) -> int:
        return state


_OF = Pipeline(name="picky", log=LOG, key="lane", what={"n": Count(), "value": Sum("value")}, where=Picky())
PIPELINES = {
    "assigned": _OF,
    "assigned by batch": replace(_OF, where=PickyBatches()),
    "assigned after steps": replace(_OF, each=[Derive({"large": Col("value") * 2**60})]),
    "merging": replace(_OF, where=Picky(merges=True)),
    "combined": replace(_OF, where=Fixed(seconds(5)), what={"inverse": Inverse("value"), "n": Count()}),
}


@dataclass(frozen=True)
class Shares:
    """Adds up shares, which a zero has none of."""

    def of(self, o: Any, record: Mapping[str, Any], types: Mapping[str, str]) -> int:
        return 0 if record["value"] is None else 60 // int(record["value"])


@dataclass(frozen=True)
class Fussy(Trigger):
    """Fires when something is fresh, but each of its rules fails sometimes, or gives what is no slot's value."""

    def slots(self) -> dict[str, bool | int]:
        return {"seen": 0, "odd": False}

    def measures(self) -> dict[str, Measure]:
        return {"shares": Shares()}

    def arrived(self, o: Any, slots: Any, measures: Mapping[str, int]) -> dict[str, Any]:
        if measures["shares"] == 12:
            raise LookupError("no twelve")
        return {**slots, "seen": o.add(slots["seen"], measures["shares"], "bigint")}

    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        if moment.fresh == 3:
            raise LookupError("no third")
        return Ready(o.at_least(moment.fresh, o.literal(1, "bigint")), o.literal(False, "boolean"))

    def fired(self, o: Any, slots: Any, moment: Moment) -> dict[str, Any]:
        return {"seen": 2**63 if moment.fresh == 2 else slots["seen"], "odd": None if moment.fresh == 5 else True}

    def done(self, o: Any, slots: Any) -> Any:
        if slots["seen"] == 60:
            raise LookupError("no sixty")
        return o.literal(False, "boolean")


FUSSY = replace(
    PIPELINES["combined"], name="fussy", when=AfterWatermark(early=Repeat(AnyOf(Fussy(), AfterCount(9))), late=Fussy())
)


@pytest.mark.filterwarnings("ignore::tailrace.model.triggers.guarded.TriggerWarning")
@for_examples(duckdb=(15, 60, 60), spark=(1, 8, 3))
def test_X7_a_trigger_of_ones_own_that_fails_costs_a_pane_and_no_record(
    engine: EngineRuns, data: st.DataObject
) -> None:
    made = data.draw(epochs(FUSSY, max_epochs=2))
    run = fold(FUSSY, made)
    assert engine.said(FUSSY, made) == [said_by_reference(FUSSY, run.panes, run.late, run.rejected)]


def test_X7_a_window_whose_trigger_fails_keeps_its_records_for_the_next_pane() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    record = {"at": at, "lane": 1, "value": 1}
    made = [([record] * count, Clock(epoch, instant(at), epoch)) for epoch, count in enumerate((3, 1))]
    with pytest.warns(TriggerWarning, match="no third; the window keeps its records"):
        panes = fold(FUSSY, made).panes
    assert [(pane.version.epoch, pane.values["n"]) for pane in panes] == [(1, 4)]


@for_examples(duckdb=(60, 200, 100), spark=(3, 8, 3))
def test_X7_what_code_of_ones_own_cannot_take_is_rejected_in_a_stream(engine: EngineRuns, data: st.DataObject) -> None:
    pipeline = PIPELINES[data.draw(st.sampled_from(sorted(PIPELINES)))]
    made = data.draw(epochs(pipeline, max_epochs=2 if isinstance(engine, OnSpark) else 5))
    run = fold(pipeline, made)
    assert engine.said(pipeline, made) == [said_by_reference(pipeline, run.panes, run.late, run.rejected)]


@pytest.mark.parametrize("name", PIPELINES)
@examples(10)
@given(bundle=bundles(12))
def test_X7_what_code_of_ones_own_cannot_take_is_in_no_backfill_and_an_audit_finds_it(
    name: str, bundle: list[dict[str, Any]]
) -> None:
    pipeline, session = PIPELINES[name], in_process()
    run = at_once(pipeline, bundle)
    rows = session.relation_of(arrow_bundle(pipeline.log, bundle, 0))
    computing = answering(session, pipeline)
    found = session.fetched(computing.brought(rows)).to_pylist()
    expected = {(key, *window): dict(values) for (key, window), values in answers(run.panes).items()}
    assert {
        ((row["lane"],), row["window_start"], row["window_end"]): {one: row[one] for one in pipeline.what}
        for row in found
    } == expected
    failed = session.fetched(computing.failed(rows)).to_pylist()
    assert sorted((row["_failed"], row["_offset"]) for row in failed) == sorted(
        (bad.reason, bundle.index(dict(bad.record))) for bad in run.rejected
    )
    session.close()


@dataclass(frozen=True)
class Shifted(PickyBatches):
    """Its windows depend on the batch."""

    def assign_batch(self, times: Any, records: Any) -> Any:
        starts, ends = super().assign_batch(times, records)
        return starts + len(times) % 2 * 10, ends


def test_the_kit_names_windows_of_a_batch_that_differ_from_those_of_a_record() -> None:
    made = [{"at": f"2024-01-01T00:00:{second:02}Z", "lane": 1, "value": value} for second, value in ((1, 1), (8, 2))]
    check_batches(PIPELINES["assigned by batch"], made)
    with pytest.raises(BatchError, match=r"assign_batch of Shifted gives for .* in a batch of 1 records, but assign"):
        check_batches(replace(_OF, where=Shifted()), made)


@pytest.mark.parametrize(
    "given",
    [
        ([0, 10], [5, 20]),
        (np.array([[0], [10]]), np.array([[5], [20]])),
        (pa.array([[0], [10]]), pa.array([[5], [20]])),
    ],
)
def test_windows_of_a_batch_are_arrays_of_one_or_two_dimensions_or_of_lists(given: Any) -> None:
    made = windows_of_batch(Given(given), pa.array([1, 11], pa.timestamp("us", "UTC")), pa.table({}))
    assert made is not None
    assert made.to_pylist() == [[{"window_start": 0, "window_end": 5}], [{"window_start": 10, "window_end": 20}]]


@pytest.mark.parametrize("given", [([0], [5]), ([0, 10], [5, 10]), ([0, None], [5, 20]), ([[0], []], [[5], [20]])])
def test_X7_windows_of_a_batch_that_are_none_are_not_taken(given: Any) -> None:
    with pytest.raises(ValueError, match="window"):
        windows_of_batch(Given(given), pa.array([1, 11], pa.timestamp("us", "UTC")), pa.table({}))


@dataclass(frozen=True)
class Given(OwnWindows):
    given: Any

    def assign_batch(self, times: Any, records: Any) -> Any:
        return self.given
