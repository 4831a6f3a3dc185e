"""What a stage's tables have recorded of its epochs: clocks, records, and the state after each (rules T2, X2).

All of it is read as of one snapshot of each table, so that a stream beside it moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog import Lake
from tailrace.lake.commits import CLOCK, recorded
from tailrace.lake.contracts import PARTIAL, ledger_contract
from tailrace.lake.drift import check_definition
from tailrace.lake.signals import names_of
from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError
from tailrace.model.names import name_faults
from tailrace.model.pipeline import Pipeline
from tailrace.spark.compile import compiled
from tailrace.spark.execution import OpenWindows
from tailrace.spark.logged import logged
from tailrace.sql.changes import changes


class ReplayError(TailraceError, ValueError):
    """Epochs that were asked for and cannot be folded or shown again."""


class Recording:
    """The recorded epochs of one stage, as far as its ledger has come when it is opened.

    `snapshots` are those that are read of each table: to be pinned by who reads for long (`lake.pins`).

    Raises `LakeError` where it has no ledger, `OtherDefinitionError` where that is another definition's, and
    `ReplayError` where it has no epoch yet.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline) -> None:
        check_definition(lake, pipeline)
        self.spark, self.lake, self.pipeline = spark, lake, pipeline
        self.execution = compiled(spark, pipeline)
        table = ledger_contract(pipeline).table
        head = lake.head(table)
        self.last = head.number("epoch")
        if self.last < 0:
            raise ReplayError(f"{table} has no epoch yet: run a stream of the definition first")
        # A commit since then may be of a later epoch.
        self._said = {epoch: said for epoch, said in recorded(lake, table).items() if epoch <= self.last}
        self.ledger = _as_of(lake, table, head.snapshot)
        # What an epoch reads is published before the epoch itself is, so these have what the ledger has.
        read = pipeline.source.name if pipeline.earlier is None else ledger_contract(pipeline.earlier).table
        self.snapshots = {table: head.snapshot, read: lake.head(read).snapshot}
        source = pipeline.earlier is None and pipeline.log.landed
        self._read = (
            logged(lake, pipeline.log, self.snapshots[read]) if source else _as_of(lake, read, self.snapshots[read])
        )

    @property
    def known(self) -> list[int]:
        """The epochs whose clocks are known, in order."""
        return sorted(self._said)

    @property
    def foldable(self) -> list[int]:
        """The epochs that can be folded again, in order: their own clock is known, and the one before it."""
        return [epoch for epoch in self.known if epoch == 0 or epoch - 1 in self._said]

    def check(self, epochs: Iterable[int], *, fold: bool = True) -> None:
        """Raises `ReplayError` where some of these epochs cannot be folded again, or else shown."""
        there = self.foldable if fold else self.known
        epoch = next(iter(sorted({*epochs} - {*there})), None)
        if epoch is None:
            return
        ledger = ledger_contract(self.pipeline).table
        if not 0 <= epoch <= self.last:
            raise ReplayError(f"epoch {epoch} is not in {ledger}: expected one of {_ranges(range(self.last + 1))}")
        what = "folded again" if fold else "shown"
        which = f"those that can are {_ranges(there)}" if there else "none of its epochs can"
        raise ReplayError(
            f"epoch {epoch} cannot be {what}: the snapshots of {ledger} that say its clock have expired; {which}"
        )

    def clock(self, epoch: int) -> Clock:
        """The clock of an epoch."""
        said = self._said[epoch]
        watermark, now = (int(said[name]) for name in CLOCK)
        return Clock(epoch, watermark, now, names_of(said))

    def generation(self, epoch: int) -> int:
        """The generation that new windows of an epoch were opened in (rule V2)."""
        return int(self._said[epoch].get("generation", 1))

    def bundle(self, epoch: int) -> DataFrame:
        """The records of an epoch: the log's, or of a later stage the panes that the one before it gave."""
        rows = f"(SELECT * FROM {self._read} WHERE {'_epoch' if self.pipeline.earlier is None else 'epoch'} = {epoch}L)"
        if self.pipeline.earlier is None:
            return self.spark.sql(rows)
        return self.spark.sql(changes(self.pipeline.earlier, rows))

    def after(self, epoch: int) -> OpenWindows:
        """The open windows after an epoch, as its partials and those before it have them; none before the first."""
        if epoch < 0:
            return self.execution.nothing()
        partials = self.spark.sql(f"SELECT * FROM {self.ledger} WHERE kind = '{PARTIAL}' AND epoch <= {epoch}L")
        return self.execution.restore(partials, self.clock(epoch), self.generation(epoch))

    def handed(self, first: int, last: int) -> set[int]:
        """The epochs from `first` to `last` after which a backfill handed its open windows to the stream (rule X4)."""
        rows = self.spark.sql(
            f"SELECT DISTINCT epoch FROM {self.ledger} WHERE kind = '{PARTIAL}' AND writer = 'backfill' "
            f"AND epoch BETWEEN {first}L AND {last}L"
        )
        return {row["epoch"] for row in rows.collect()}


def check_new(lake: Lake, table: str, *more: str) -> None:
    """Raises `ReplayError` where a table of this name cannot be made, or `more` that go with it."""
    if list(name_faults("", table)) or "__" in table:
        raise ReplayError(f"table {table!r}: expected a name of up to 63 lower-case letters, digits and single _")
    for one in (table, *more):
        if lake.has(one):
            raise ReplayError(f"there is a table {one} already: give another name, or drop it first")


def _as_of(lake: Lake, table: str, snapshot: int | None) -> str:
    return f"{lake.spark_name(table)} VERSION AS OF {snapshot}"


def _ranges(epochs: Iterable[int]) -> str:
    """Epochs by their runs.

    >>> _ranges([0, 1, 2, 5, 7, 8])
    '0..2, 5, 7..8'
    """
    runs: list[list[int]] = []
    for epoch in epochs:
        if runs and runs[-1][-1] == epoch - 1:
            runs[-1].append(epoch)
        else:
            runs.append([epoch])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
