"""A replay: the recorded epochs of a stage folded again, and held against its ledger row for row (law L3).

It goes by the recorded clocks from the state before the first epoch, in one session, and writes what comes out to a
table of its own; then both are compared in Spark. It reads one snapshot of each table and takes no lease, so a stream
goes on beside it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import ledger_contract
from tailrace.lake.pins import pinned
from tailrace.model.pipeline import Pipeline
from tailrace.spark.comparing import Count, Difference, compared
from tailrace.spark.execution import OpenWindows
from tailrace.spark.recording import Recording, ReplayError, check_new

BATCH = 8
"""How many epochs are written in one commit."""


@dataclass(frozen=True)
class Replayed:
    """What a replay of the epochs `first` to `last` found; `latest` is the last one that there is.

    `counts` has the ledger's kinds of rows, and retractions apart from panes. `table` holds the rows where they were
    kept.
    """

    first: int
    last: int
    latest: int
    counts: Mapping[str, Count]
    differences: tuple[Difference, ...]
    seconds: float
    table: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the ledger's rows came out again, each as often, and no other."""
        return all(count.ledger == count.replay == count.same for count in self.counts.values())


def replay(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    first: int | None = None,
    last: int | None = None,
    *,
    keep: str | None = None,
    watch: Callable[[int], None] = lambda epoch: None,
) -> Replayed:
    """Fold the epochs `first` to `last` of one stage again: from the first to the last one there is, if left out.

    `keep` names a table for the rows to stay in; `watch` is told each epoch as it begins. Raises `ReplayError` where an
    epoch is not there or its clock not known any more, or `keep` is taken, and what `Recording` raises.
    """
    started = time.perf_counter()
    recording = Recording(spark, lake, pipeline)
    first, last = 0 if first is None else first, recording.last if last is None else last
    if first > last:
        raise ReplayError(f"there are no epochs from {first} to {last}: expected the first one first")
    recording.check(range(first, last + 1))
    if keep is not None:
        check_new(lake, keep)
    table = keep or f"{pipeline.name}__replay_{uuid.uuid4().hex[:8]}"
    contract = ledger_contract(pipeline)
    lake.ensure(replace(contract, table=table, doc=f"{contract.table}, epochs {first} to {last} folded again"))
    done = False
    try:
        with pinned(lake, recording.snapshots):
            _fold(recording, table, range(first, last + 1), watch)
            mine = f"epoch BETWEEN {first}L AND {last}L AND COALESCE(writer, 'stream') = 'stream'"
            ledger = f"(SELECT * FROM {recording.ledger} WHERE {mine})"
            counts, differences = compared(spark, pipeline, ledger, lake.spark_name(table))
        done = True
    finally:
        if keep is None or not done:
            lake.drop(table)
    return Replayed(first, last, recording.last, counts, differences, time.perf_counter() - started, keep)


def _fold(recording: Recording, table: str, epochs: range, watch: Callable[[int], None]) -> None:
    """Fold the epochs one after another, and write their rows."""
    execution = recording.execution
    handed = recording.handed(epochs.start, epochs.stop - 1)
    state = recording.after(epochs.start - 1)
    passed: list[OpenWindows] = []
    rows: list[DataFrame] = []
    for epoch in epochs:
        watch(epoch)
        # A stream may have gone on in a state that a backfill handed to it, in that one's generation (rule V2).
        before = replace(state, generation=recording.generation(epoch))
        stepped = execution.step(before, execution.consume(recording.bundle(epoch), before), recording.clock(epoch))
        passed.append(state)
        rows.append(stepped.rows)
        state = stepped.state
        if len(rows) == BATCH or epoch in handed or epoch == epochs[-1]:
            # Nothing was computed so far but what the bundles hold: this folds them all.
            reduce(DataFrame.unionAll, rows).writeTo(recording.lake.spark_name(table)).append()
            for one in passed:
                one.forget()
            passed, rows = [], []
        if epoch in handed and epoch != epochs[-1]:
            passed.append(state)
            state = recording.after(epoch)
    state.forget()
