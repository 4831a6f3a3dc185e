"""Land a bundle whose records are in this process or in data files: write them to the log, or to the table `rejected`.

The commits to these tables record the epoch (X2, X6). `ingest.landing` also lands what Spark has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.change.restoration import go_back
from tailrace.lake.commit.lease import Lease
from tailrace.lake.commit.trimming import Trimming
from tailrace.lake.schema.contracts import landed_contract, log_contract, rejected_contract
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import rejected_name
from tailrace.lake.upkeep.compaction import Compaction
from tailrace.model.logs.log import Log

NOTHING = {"epoch": "-1", "batch": "-1"}
"""The properties of a log's first snapshot, before the first epoch."""


@dataclass(frozen=True)
class LandedCounts:
    """The counts of a landed bundle: records written to the log, rejected records, and dropped duplicates.

    `rounded` counts the decimals in the log's records that were rounded (`Log.rounding`). `blank` counts skipped blank
    lines, and `links` counts files that were skipped because they were reached through symbolic links.
    """

    records: int
    rejected: int
    duplicates: int = 0
    rounded: int = 0
    blank: int = 0
    links: int = 0

    @property
    def total(self) -> int:
        """The total number of records that were read, including rejected records and duplicates."""
        return self.records + self.rejected + self.duplicates

    def __add__(self, other: LandedCounts) -> LandedCounts:
        return LandedCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class LandedFiles:
    """The records of an epoch in data files that no commit of the log contains yet, and the rows for rejected
    records.
    """

    files: tuple[DataFile, ...]
    records: int
    rejected: pa.Table | None = None


InProcess: TypeAlias = "pa.Table | LandedFiles"
"""The records of an epoch that this process can land: in an Arrow table, or in data files."""

R = TypeVar("R")


@dataclass(frozen=True)
class HeldRows(Generic[R]):
    """Rows that were written to a lease's branch but are not published yet, and the properties of their commit."""

    lease: Lease
    rows: R
    properties: Mapping[str, str]


class RowLanding(Generic[R]):
    """The writer of one log, without Spark. The writer holds the leases of the log and of the log's table `rejected`.

    If several logs are landed, `first` is the lease of the first log. Only the process that holds this lease can take
    the leases of the other logs (rule X1).
    """

    def __init__(self, lake: Lake, log: Log, first: Lease | None = None) -> None:
        self.lake, self.log_definition = lake, log
        for contract in (landed_contract(log), rejected_contract(log)):
            lake.ensure(contract, NOTHING)
        self.log = Lease.take(lake, log.name, first)
        self.rejected = Lease.take(lake, rejected_name(log.name), self.log)
        self._written: list[HeldRows[R | InProcess]] = []
        self._compacting = Compaction(lake)
        self._trimming = {lease.table: Trimming(lake, lease.table) for lease in (self.log, self.rejected)}

    @property
    def epoch(self) -> int:
        """The number of the last epoch that was published in the log."""
        return self.log.head.number("epoch")

    @property
    def batch(self) -> int:
        """The number of the last micro-batch that was published in the log."""
        return self.log.head.number("batch")

    def write(self, bundle: R | InProcess, properties: Mapping[str, str]) -> LandedCounts:
        """Write a bundle; `publish` later commits it with `properties`, which include the epoch's number."""
        if isinstance(bundle, LandedFiles):
            return self._here(bundle, bundle.records, bundle.rejected, properties)
        assert isinstance(bundle, pa.Table)
        return self._rows(bundle, properties)

    def _rows(self, table: pa.Table, properties: Mapping[str, str]) -> LandedCounts:
        """Write the records of an Arrow table to data files, in this process."""
        bad = table.filter(pc.is_valid(table["_error"])) if table["_error"].null_count < table.num_rows else None
        good = table if bad is None else table.filter(pc.is_null(table["_error"]))
        own = good.select(list(log_contract(self.log_definition).columns))
        return self._here(own, own.num_rows, bad, properties)

    def _here(
        self, records: InProcess, count: int, bad: pa.Table | None, properties: Mapping[str, str]
    ) -> LandedCounts:
        """Write an epoch's records and rejected records to data files, without Spark, and prepare their commits.

        Records that are already in data files are not written again.
        """
        self._written = [self._append(records, self.log, {**properties, **self.log.properties})]
        rejected = 0 if bad is None else bad.num_rows
        if bad is not None and rejected and self.rejected.head.number("epoch") < int(properties["epoch"]):
            rows = bad.select(list(BAD)).rename_columns(list(BAD.values()))
            self._written.insert(0, self._append(rows, self.rejected, {**properties, **self.rejected.properties}))
        return LandedCounts(count, rejected)

    def _append(self, rows: R | InProcess, lease: Lease, properties: Mapping[str, str]) -> HeldRows[R | InProcess]:
        """Write rows to data files, and hold them on the lease's branch."""
        files = rows.files if isinstance(rows, LandedFiles) else tuple(self.lake.write_files(lease.table, rows))
        lease.branch.hold(FileChange(files), properties)
        return HeldRows(lease, rows, properties)

    def publish(self) -> None:
        """Publish the bundle: first the rejected records, so that an epoch is complete as soon as it is in the log.

        If maintenance has changed a table in the meantime, the commit is based on the changed table. In this case, rows
        that Spark wrote are written a second time (rule X1). Raises `FencedError` if another stream has taken the
        lease.
        """
        while self._written:
            written = self._written[0]
            try:
                written.lease.publish(written.properties)
            except MovedError:
                if not written.lease.branch.holds:
                    self._append(written.rows, written.lease, written.properties)
            else:
                self._written.pop(0)
                self._trimming[written.lease.table].after_commit()
                self._compacting.after_commit(written.lease)

    def take_back_rejected(self) -> None:
        """Remove the rejected records of an epoch that is missing in the log, because the epoch will be read again."""
        if self.rejected.head.number("epoch") > self.epoch:
            go_back(self.lake, self.rejected, self.epoch)

    def close(self) -> None:
        """Remove the branches that belong to the leases of the log and of the table `rejected`."""
        self._compacting.close()
        self.log.close()
        self.rejected.close()


BAD = {"_raw": "raw", "_error": "error"} | {name: name for name in ("_epoch", "_source", "_offset", "_arrival")}
"""The columns of a rejected record, with the names that they have in the table `rejected`."""
