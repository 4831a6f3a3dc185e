"""Epochs of many records say on DuckDB what one aggregation says.

Random definitions are run over few records, and a table of which many rows are deleted is kept otherwise than a small
one: its row ids may move.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from tailrace import AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, Sum, minutes
from tailrace.engines.duckdb.side import execution_of
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import Trigger
from tests.support.engines.engine_runs import CONNECTION

START, MINUTE = instant(datetime(2024, 1, 1, tzinfo=UTC)), 60_000_000
EPOCHS, RECORDS, KEYS = 20, 50_000, 10_000
SIDES = Log(name="views", columns={"who": "bigint", "cents": "bigint", "at": "timestamp"}, event_time="at")


def bundle(epoch: int) -> pa.Table:
    """A minute's records, as rows of the log."""
    chance = np.random.default_rng(epoch)
    at = START + epoch * MINUTE + chance.integers(0, MINUTE, RECORDS)
    return pa.table(
        {
            "who": chance.integers(0, KEYS, RECORDS),
            "cents": chance.integers(0, 1_000, RECORDS),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "_epoch": np.full(RECORDS, epoch),
            "_source": pa.nulls(RECORDS, pa.string()),
            "_offset": np.arange(RECORDS),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("when", [AfterWatermark(), Repeat(AfterCount(1))], ids=["once", "each_epoch"])
def test_L1_windows_of_many_epochs_of_many_records_have_all_their_records(when: Trigger) -> None:
    what = {"n": Count(), "cents": Sum("cents")}
    pipeline = Pipeline(name="large", log=SIDES, key="who", what=what, where=Fixed(minutes(2)), when=when)
    one, rows = execution_of(CONNECTION.cursor(), pipeline), list[pa.Table]()
    state = one.nothing()
    for epoch in range(EPOCHS):
        last = epoch == EPOCHS - 1
        clock = Clock(epoch, END_OF_TIME if last else START + (epoch - 5) * MINUTE, START + epoch * MINUTE)
        moved = one.step(state, one.consume(bundle(epoch), state), clock)
        rows.append(moved.rows.select(["kind", "who", "window_start", "n", "cents"]))
        state = moved.state
    one.close()
    assert state.count == 0
    said = CONNECTION.cursor()
    said.register("said", pa.concat_tables(rows))
    said.register("log", pa.concat_tables(map(bundle, range(EPOCHS))))
    found = said.execute(
        "SELECT who, epoch_us(window_start) AS begins, MAX(n), ARG_MAX(cents, n) FROM said WHERE kind = 'pane' "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    expected = said.execute(
        f'SELECT who, epoch_us("at") // {2 * MINUTE} * {2 * MINUTE} AS begins, COUNT(*), SUM(cents)::BIGINT FROM log '
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert found == expected
