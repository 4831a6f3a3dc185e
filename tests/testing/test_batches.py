"""`same_by_batch` compares a computation's code for a batch with its code for one record."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import Batch, Computation, Context, Field, RecordError, seconds
from tailrace.model.definition.computation import ComputationError
from tailrace.testing import BatchError, same_by_batch
from tests.support.cases.clicks import CLICKS, START
from tests.support.cases.searches import HASTY, LOGS, made
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import cases


class Counted(Computation):
    """It counts a key's records; `off` is a fault of the code for a batch."""

    state = {"n": Field("bigint", 0)}
    produces = {"n": "bigint"}
    off = ""

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        if record["id"] == 13:
            raise RecordError("thirteen")
        context.state.n += 1
        context.set_timer("end", record["at"] + seconds(30))
        context.produce({"n": context.state.n})

    def process_timer(self, context: Context, timer: Any) -> None:
        context.state.clear()

    def process_batch(self, batch: Batch) -> None:
        rows, key = batch.records, batch.records["_key"]
        batch.by_record(pc.unique(key.filter(pc.equal(rows["id"], 13))))
        counts = rows.group_by("_key").aggregate([("id", "count")])
        seen: dict[int, int] = {}
        before, told = batch.state["n"].to_pylist(), []
        for one in key.to_pylist():
            seen[one] = seen.get(one, 0) + 1
            told.append(before[one] + seen[one] + (self.off == "value"))
        batch.produce(
            range(rows.num_rows), {"n": told} if self.off == "list" else {"n": pc.cast(told_array(told), "int64")}
        )
        if self.off != "timer":
            batch.set_timers(range(rows.num_rows), "end", pc.add(rows["at"], seconds(30)))
        if self.off != "state":
            batch.state["n"] = told_array([n + seen.get(place, 0) for place, n in enumerate(before)])
        assert counts.num_rows == len(seen)


def told_array(values: list[int]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.int64())


ROWS = [{"id": n, "who": "ab"[n % 2], "at": START + seconds(n), "seen": START} for n in range(9)]


def test_a_batch_that_does_what_the_records_do_is_let_through() -> None:
    counted = Counted(name="counted", log=CLICKS, key="who")
    assert len(same_by_batch(counted, [ROWS[:5], ROWS[5:]]).rows) == 9
    assert len(same_by_batch(counted, [[{**ROWS[0], "id": 13}, *ROWS[1:]]]).rejected.rows) == 1


@pytest.mark.parametrize(
    ("off", "said"), [("value", "other records"), ("state", "another state"), ("timer", "another state")]
)
def test_what_a_batch_does_otherwise_is_shown(off: str, said: str) -> None:
    kind = type("Off", (Counted,), {"off": off})
    with pytest.raises(BatchError, match=said):
        same_by_batch(kind(name="counted", log=CLICKS, key="who"), [ROWS], ends=False)


def test_an_error_of_the_batch_is_not_caught_by_the_kit() -> None:
    kind = type("Off", (Counted,), {"off": "list"})
    with pytest.raises((ComputationError, TypeError, ValueError)):
        same_by_batch(kind(name="counted", log=CLICKS, key="who"), [ROWS])


@each_time_the_same(cases(20, deeper=100))
@given(chance=st.integers(0, 10**6))
def test_photon_joins_by_batch_as_it_does_by_record(chance: int) -> None:
    random = Random(chance)
    mixed = sorted(
        made(random.randrange(9), 40_000_000), key=lambda one: one["known"].timestamp() + random.randrange(90)
    )
    mixed += random.choices(mixed, k=9)
    epochs: list[dict[str, Any]] = []
    while mixed:
        bundle, mixed = mixed[: (cut := random.randint(1, 60))], mixed[cut:]
        epochs.append(
            {
                log: [{n: v for n, v in one.items() if n in known} for one in bundle if one["log"] == log]
                for log, known in ((part.name, part.columns) for part in HASTY.sources)
            }
        )
    assert set(epochs[0]) == set(LOGS)
    same_by_batch(HASTY, epochs)
