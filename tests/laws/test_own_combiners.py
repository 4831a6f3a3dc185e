"""Combiners of one's own say what the reference says, by the record, by the batch and by all windows at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import RETRACTING, AfterCount, Count, Fixed, OwnCombiner, Pipeline, Repeat, Sessions, Sliding, seconds
from tailrace.engines.batch.batch_answers import CombinedAnswering, answering
from tailrace.engines.duckdb.executions.combined_execution import CombinedExecution
from tailrace.engines.duckdb.executions.python_execution import PythonExecution
from tailrace.engines.duckdb.side import execution_of
from tailrace.engines.python import own_calls
from tailrace.model.combiners.basic import Combiner
from tailrace.model.combiners.laws import LawError
from tailrace.model.combiners.own import OwnCall, OwnPart, OwnUse
from tailrace.model.step.reference import at_once, fold
from tailrace.model.windows.panes import answers
from tailrace.sql.terms import Query
from tailrace.testing import obeys
from tests.support.cases.strategies import BASE, LOG, bundles, epochs, examples, pipelines
from tests.support.engines.engine_runs import CONNECTION, EngineRuns, OnDuck, OnSpark, for_examples
from tests.support.engines.sessions import in_process
from tests.support.engines.spark_runs import arrow_bundle, said_by_reference


@dataclass(frozen=True)
class Total(OwnCombiner):
    """A sum of whole numbers, which cannot take `refused`."""

    column: str | None = "value"
    refused: int = 7

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        if value == self.refused:
            raise LookupError(f"no {value}")
        return state + value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def output(self, state: int) -> int:
        if state == 3:
            raise LookupError("three")
        return state


@dataclass(frozen=True)
class TotalByBatch(Total):
    def add_batch(self, state: int, values: pa.Array) -> Any:
        if pc.any(pc.equal(values, self.refused)).as_py():
            raise LookupError("refused")
        return pc.add(pc.sum(values), state)


@dataclass(frozen=True)
class TotalByGroups(Total):
    def add_groups(self, values: pa.Array, starts: Any) -> Any:
        if (values.to_numpy() == self.refused).any():
            raise LookupError("refused")
        return np.add.reduceat(values.to_numpy(), starts)


@dataclass(frozen=True)
class TooFew(Total):
    """It does not return a state for each window, so the values are added one by one."""

    def add_groups(self, values: pa.Array, starts: Any) -> Any:
        return []


@dataclass(frozen=True)
class Numbers(OwnCombiner):
    """The distinct numbers in their order, as NumPy finds them."""

    column: str = "value"
    state = gives = "array<bigint>"

    def zero(self) -> list[int]:
        return []

    def add(self, state: list[int], value: int) -> list[int]:
        return self.merge(state, [value])

    def add_batch(self, state: list[int], values: pa.Array) -> Any:
        return np.union1d(np.array(state, np.int64), values)

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return sorted({*a, *b})

    def output(self, state: list[int]) -> list[int]:
        return state


@dataclass(frozen=True)
class Latest(OwnCombiner):
    """The latest instant; there is none at first."""

    column: str = "at"
    state = gives = "timestamp"

    def zero(self) -> Any:
        return None

    def add(self, state: datetime | None, value: datetime) -> datetime:
        return self.merge(state, value)  # type: ignore[no-any-return]

    def add_batch(self, state: datetime | None, values: pa.Array) -> Any:
        return self.merge(state, pc.max(values).as_py())

    def merge(self, a: Any, b: Any) -> Any:
        return max((one for one in (a, b) if one is not None), default=None)

    def output(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class Rows(Total):
    """The number of records, whatever is in them."""

    column: str | None = None

    def add(self, state: int, value: Any) -> int:
        return state + 1

    def add_groups(self, values: pa.Array, starts: Any) -> Any:
        return np.diff([*starts, len(values)])


OWN: dict[str, Combiner] = {
    "total": Total(), "by_batch": TotalByBatch(), "by_groups": TotalByGroups(), "too_few": TooFew(refused=99),
    "numbers": Numbers(), "latest": Latest(), "rows": Rows(),
}  # fmt: skip


@for_examples(duckdb=(30, 400, 200), duckdb_in_python=(4, 40, 20), spark=(1, 8, 3))
def test_L3_combiners_of_ones_own_say_the_same_by_record_by_batch_and_by_groups(
    engine: EngineRuns, data: st.DataObject
) -> None:
    pipeline = data.draw(pipelines())
    names = data.draw(st.lists(st.sampled_from(sorted(OWN)), min_size=1, max_size=3, unique=True))
    pipeline = replace(pipeline, what={**pipeline.what, **{f"own_{name}": OWN[name] for name in names}})
    made = data.draw(epochs(pipeline, max_epochs=2 if isinstance(engine, OnSpark) else 5))
    run = fold(pipeline, made)
    assert engine.said(pipeline, made) == [said_by_reference(pipeline, run.panes, run.late, run.rejected)]
    if type(engine) is OnDuck and not pipeline.own_windows:
        assert type(engine.execution(pipeline)) is CombinedExecution


@pytest.mark.parametrize("where", [Fixed(seconds(5)), Sliding(seconds(8), every=seconds(2)), Sessions(seconds(2))])
def test_what_combines_is_all_of_a_step_that_runs_in_python(where: Any) -> None:
    pipeline = Pipeline(
        name="own", log=LOG, key="place", what={"n": Count(), "total": Total()}, where=where, how=RETRACTING
    )
    assert type(execution_of(CONNECTION.cursor(), pipeline)) is CombinedExecution
    again = Pipeline(
        name="later",
        log=pipeline.panes,
        key="place",
        what={"total": Total("total")},
        where=Fixed(seconds(60)),
        when=Repeat(AfterCount(1)),
    )
    assert type(execution_of(CONNECTION.cursor(), again)) is PythonExecution


def test_equal_combiners_share_their_functions_and_others_never_do() -> None:
    def names(*combiners: Combiner) -> set[str]:
        parts = [part for one in combiners for part in one.parts("bigint") if isinstance(part, OwnPart)]
        return {OwnCall(part, OwnUse.ADD).name for part in parts}

    assert len(names(Total(), Total())) == 1
    assert len(names(Total(), Total(refused=True), Total(refused=1), TotalByBatch(), Total("id"))) == 5


@pytest.mark.parametrize("combiner", [one for name, one in OWN.items() if name not in ("too_few", "rows")], ids=repr)
def test_the_kit_accepts_combiners_whose_batches_say_what_their_records_say(combiner: OwnCombiner) -> None:
    numbers = [30, 10, 40, -90, 60]
    obeys(combiner, [BASE + seconds(one) for one in numbers] if combiner.column == "at" else numbers)


@dataclass(frozen=True)
class Forgetful(Total):
    """It forgets what was there before a batch."""

    def add_batch(self, state: int, values: pa.Array) -> Any:
        return pc.sum(values)


@dataclass(frozen=True)
class Shifted(Total):
    """It has each window's total with the next window."""

    def add_groups(self, values: pa.Array, starts: Any) -> Any:
        return np.roll(np.add.reduceat(values.to_numpy(), starts), 1)


@pytest.mark.parametrize(
    ("combiner", "said"),
    [
        (Forgetful(), "add_batch must return what add returns for one value after the other"),
        (Shifted(), "add_groups must return what add returns for the values of each group"),
        (TooFew(), "it must return a sequence or an array with one state for each"),
    ],
)
def test_the_kit_finds_batches_that_say_something_else(combiner: OwnCombiner, said: str) -> None:
    with pytest.raises(LawError, match=said):
        obeys(combiner, [20, 50, 80])


@examples(30)
@given(data=st.data(), bundle=bundles(12))
def test_L1_a_backfill_calls_combiners_of_ones_own_in_queries(
    data: st.DataObject, bundle: list[dict[str, Any]]
) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(OWN)), min_size=1, max_size=3, unique=True))
    where: Any = data.draw(st.sampled_from([Fixed(seconds(5)), Sliding(seconds(8), seconds(2)), Sessions(seconds(2))]))
    what = {"n": Count(), **{f"own_{name}": OWN[name] for name in names}}
    pipeline, session = Pipeline(name="own", log=LOG, key="lane", what=what, where=where), in_process()
    run = at_once(pipeline, bundle)
    rows, computing = session.relation_of(arrow_bundle(pipeline.log, bundle, 0)), answering(session, pipeline)
    assert type(computing) is CombinedAnswering
    expected = {(key, *window): dict(values) for (key, window), values in answers(run.panes).items()}
    placed = session.materialized(computing.placed(rows))
    for query in (computing.brought(rows), computing.batch(Query(f"SELECT * FROM {placed}"))):
        found = session.fetched(query).to_pylist()
        assert {
            ((row["lane"],), row["window_start"], row["window_end"]): {one: row[one] for one in pipeline.what}
            for row in found
        } == {place: {one: values[one] for one in pipeline.what} for place, values in expected.items()}
    failed = session.fetched(computing.failed(rows)).to_pylist()
    assert sorted((row["_failed"], row["_offset"]) for row in failed) == sorted(
        (bad.reason, bundle.index(dict(bad.record))) for bad in run.rejected
    )
    session.close()


@pytest.mark.parametrize("name", [name for name, one in OWN.items() if one.column == "value"])
def test_windows_whose_records_have_no_values_have_the_result_of_an_empty_accumulator(name: str) -> None:
    combiner = OWN[name]
    (part, *_) = combiner.parts("bigint")
    assert isinstance(part, OwnPart)
    assert isinstance(combiner, OwnCombiner)
    values = pa.array([[], [1, 2], []], pa.list_(pa.int64()))
    found = own_calls.over_columns(OwnCall(part, OwnUse.ADD))(values).to_pylist()
    assert [one["value"] for one in found] == [combiner.zero(), found[1]["value"], combiner.zero()]
    assert [one["failed"] for one in found] == [None] * 3


def test_windows_with_many_values_are_added_up_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    (part, *_) = Total().parts("bigint")
    assert isinstance(part, OwnPart)
    groups = [[1, 2], [], [3, 4, 5, 6, 8], [9], [10, 11, 12], [13, 14], [], [15]]
    for piece in (1, 2, 3, 4, 100):
        monkeypatch.setattr(own_calls, "PIECE", piece)
        found = own_calls.over_columns(OwnCall(part, OwnUse.ADD))(pa.array(groups, pa.list_(pa.int64()))).to_pylist()
        assert found == [{"value": sum(group), "failed": None} for group in groups]
