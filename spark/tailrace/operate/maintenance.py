"""Maintenance beside running streams and backfills, by this process or by Iceberg's own procedures (rule X3).

The process finds out from the tables' metadata what they need, and writes small files together where these fit it. The
procedures are Spark's, which is started for the first one that is called: where there is nothing else to rewrite, to
expire or to delete, Spark is never started.

Where commits have wrong times, these are put right first (`lake.upkeep.time_mending`).

For each table, in this order: the remains of dead writers are removed; small files are written together, deletes are
applied, manifests are merged; a commit on top repeats the properties of the last epoch's commit; the properties of the
commits that are to expire are archived, and these snapshots expire with the files that only they have; files that no
snapshot names are deleted.

Maintenance waits for nobody, and nobody for maintenance. A writer that finds its table moved builds its commit on top
(rule X1). A rewriting whose files another commit changed is dropped, and the next maintenance does it: two runs of
maintenance at once are harmless.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.engines.choose import in_bytes
from tailrace.engines.spark.session import Starting, when_needed
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import scratch
from tailrace.lake.change.registry import registry_contracts, shared
from tailrace.lake.commit.archive import archive
from tailrace.lake.commit.epoch_properties import carry_forward
from tailrace.lake.commit.retention import expired
from tailrace.lake.metadata.commit_times import milliseconds
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.upkeep.needs import (
    TOGETHER,
    Need,
    UpkeepPlan,
    UpkeepTable,
    need,
    needed_snapshots,
    planned,
    upkeep_tables,
)
from tailrace.lake.upkeep.orphans import orphans
from tailrace.lake.upkeep.rewriting import write_together
from tailrace.lake.upkeep.time_mending import WrongTimes, can_mend, mend_times, wrong_times
from tailrace.model.definition.chain import Definition
from tailrace.sql.terms import quoted

TRIES = 3
"""The maximum number of times that a rewriting or an expiry is tried when other commits overtake it."""

_OVERTAKEN = re.compile(
    r"(ValidationException|CommitFailedException|Cannot expire \d+. Still referenced|arraySize cannot be negative)"
)
"""The errors by which a commit of another writer that got in the way is recognised. The last is Iceberg's error where
more snapshots are to expire than the table has left, because its writer has trimmed it meanwhile: Iceberg allocates an
array of the difference.
"""

_ORPHANS = "tailrace_orphans"
"""The view of files that no snapshot names, for Iceberg's procedure that deletes them."""

_PROCEDURES = {
    "rewrite_data_files": ("rewritten_data_files_count", "added_data_files_count"),
    "rewrite_position_delete_files": ("rewritten_delete_files_count", "added_delete_files_count"),
    "rewrite_manifests": ("rewritten_manifests_count", "added_manifests_count"),
}
"""The columns in which each of Iceberg's procedures counts the files that it took, and the files that it made."""


class MaintenanceError(LakeError):
    """Maintenance that failed on the way. The steps that were done stay done, and no step is half done."""


@dataclass(frozen=True)
class Maintained:
    """The result of maintaining a table: by kind of file, how many were rewritten and into how many; what was removed.

    `expired` counts snapshots, `deleted` the files that went with them, `orphans` deleted files that no snapshot named.
    `names` are the branches and tags removed. `overtaken` names the procedures that other commits got in the way of at
    each try, and `by_spark` the procedures that Spark ran.
    """

    table: str
    rewritten: Mapping[str, tuple[int, int]]
    expired: int
    deleted: int
    orphans: int
    names: tuple[str, ...]
    overtaken: tuple[str, ...]
    seconds: float
    by_spark: tuple[str, ...] = ()


@dataclass(frozen=True)
class Maintenance:
    """The results of maintaining the tables of a definition, and the tables of dead writers that were dropped.

    `times` are the tables whose commits had wrong times, which are right now.
    """

    tables: tuple[Maintained, ...]
    dropped: tuple[str, ...]
    times: tuple[WrongTimes, ...] = ()
    times_left: tuple[WrongTimes, ...] = ()


def maintain(
    spark: Starting, lake: Lake, definition: Definition, *, watch: Callable[[str], None] = lambda table: None
) -> Maintenance:
    """Maintain the tables of a definition and of those that it reads, and their registries.

    `watch` is called with the name of each table. Spark is started where a table needs it.

    Raises `LakeError` where there are no tables yet, and `MaintenanceError` where one could not be maintained.
    """
    session, registries = when_needed(spark), shared(lake)
    claimed = [one.table for one in registry_contracts(definition)]
    # First of all, since Spark refuses such tables, and since ages are told by these times.
    own = [one.name for one in upkeep_tables(lake, definition)]
    times = [*mend_times(lake, own), *mend_times(registries, claimed)]
    left = [] if can_mend(lake) else wrong_times(lake, own)
    plan: UpkeepPlan = planned(lake, definition, milliseconds())
    for table in plan.leftovers:
        # Another maintenance may have dropped it meanwhile.
        with suppress(LakeError, NoSuchTableError):
            lake.drop(table)
    done = []
    for upkeep in plan.needs:
        watch(upkeep.table.name)
        done.append(_Table(session, lake, upkeep.table).maintain(upkeep))
    # The first archiving of a table's commits makes the table of the archive, which is maintained here.
    known = {upkeep.table.name for upkeep in plan.needs}
    for new in (one for one in upkeep_tables(lake, definition) if one.name not in known):
        watch(new.name)
        done.append(_Table(session, lake, new).maintain(need(lake, new, milliseconds())))
    for contract in registry_contracts(definition):
        if registries.has(contract.table):
            watch(contract.table)
            registry = UpkeepTable(contract)
            done.append(_Table(session, registries, registry).maintain(need(registries, registry, milliseconds())))
    return Maintenance(tuple(done), plan.leftovers, tuple(times), tuple(left))


@dataclass
class _Table:
    """The maintenance of one table."""

    spark: Callable[[], SparkSession]
    lake: Lake
    table: UpkeepTable
    overtaken: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)

    def maintain(self, upkeep: Need) -> Maintained:
        started = time.perf_counter()
        table = self.table.name
        self.lake.unname(table, upkeep.names)
        here = self._together(upkeep)
        if here[0]:
            upkeep = need(self.lake, self.table, milliseconds())
        rewritten = dict(filter(None, (self._rewritten(*step) for step in _steps(upkeep))))
        if here[0]:
            own = rewritten.get("data files", (0, 0))
            rewritten["data files"] = (here[0] + own[0], here[1] + own[1])
        carry_forward(self.lake, table)
        gone, deleted = self._expire()
        orphans = self._orphans()
        seconds = time.perf_counter() - started
        outcome = (tuple(self.overtaken), seconds, tuple(dict.fromkeys(self.called)))
        return Maintained(table, rewritten, gone, deleted, orphans, upkeep.names, *outcome)

    def _together(self, upkeep: Need) -> tuple[int, int]:
        """Write small files together in this process, where it may and they fit; return how many it took, and made."""
        settings = self.lake.settings
        if settings.engine == "spark" or upkeep.deletes or not upkeep.rewrites:
            return 0, 0
        return write_together(self.lake, self.table.name, TOGETHER, in_bytes(settings.memory))

    def _rewritten(self, what: str, procedure: str, arguments: str) -> tuple[str, tuple[int, int]] | None:
        row = self._tried(procedure, lambda: self._call(procedure, arguments))
        if row is None:
            return None
        taken, made = (int(row[name]) for name in _PROCEDURES[procedure])
        return (what, (taken, made)) if taken else None

    def _expire(self) -> tuple[int, int]:
        """Archive and expire the snapshots that are not kept; returns how many, and how many files went with them."""
        counts = self._tried("expire_snapshots", self._expired)
        return (0, 0) if counts is None else counts

    def _expired(self) -> tuple[int, int]:
        needed = needed_snapshots(self.lake, self.table)
        loaded = self.lake.table(self.table.name)
        going = expired(loaded, milliseconds(), self.lake.settings.keep_snapshots, needed)
        if self.table.archived:
            archive(self.lake, self.table.name, going.cut)
        if not going.removed:
            return 0, 0
        ids = ", ".join(f"{snapshot}L" for snapshot in going.removed)
        # The snapshots to expire are named: with a time this long ago none expires by its age.
        row = self._call("expire_snapshots", f"older_than => TIMESTAMP '1970-01-02', snapshot_ids => ARRAY({ids})")
        return len(going.removed), sum(int(count or 0) for count in row.asDict().values())

    def _orphans(self) -> int:
        if self.table.stage is not None and scratch(self.lake, self.table.stage.name):
            # A generation is being built in a folder of the table, and no snapshot of the table names its files yet.
            return 0
        until = datetime.now(UTC) - self.lake.settings.keep_orphans
        older = f"older_than => TIMESTAMP '{until:%Y-%m-%d %H:%M:%S}'"
        if self.lake.settings.on_s3:
            # Iceberg's own client lists the files: Hadoop may have no client for the addresses of S3.
            return len(self._rows("remove_orphan_files", f"{older}, prefix_listing => true"))
        files = orphans(self.lake, self.table.name, until)
        if not files:
            return 0
        # Iceberg looks only at the files that are told it, and keeps those that a snapshot names by now.
        columns = "file_path string, last_modified timestamp"
        rows = [(file, until - timedelta(seconds=1)) for file in files]
        self.spark().createDataFrame(rows, columns).createOrReplaceTempView(_ORPHANS)
        return len(self._rows("remove_orphan_files", f"{older}, file_list_view => '{_ORPHANS}'"))

    def _tried(self, what: str, work: Callable[[], Any]) -> Any:
        """Return the result of `work`; None where another commit got in its way at each of `TRIES` tries."""
        for _ in range(TRIES):
            try:
                return work()
            except (PySparkException, Py4JJavaError) as error:
                if not _OVERTAKEN.search(str(error)):
                    raise self._failed(what, error) from error
        self.overtaken.append(what)
        return None

    def _call(self, procedure: str, arguments: str) -> Any:
        (row,) = self._rows(procedure, arguments)
        return row

    def _rows(self, procedure: str, arguments: str) -> list[Any]:
        settings = self.lake.settings
        self.called.append(procedure)
        table = f"table => '{settings.namespace}.{self.table.name}'"
        passed = f"{table}, {arguments}" if arguments else table
        return self.spark().sql(f"CALL {quoted(settings.catalog)}.system.{procedure}({passed})").collect()

    def _failed(self, what: str, error: Exception) -> MaintenanceError:
        # The error of Python says only that a call of the JVM failed.
        words = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
        first = words.split("\n", 1)[0]
        return MaintenanceError(
            f"{what} of {self.table.name} failed: {first}; what was done before stays done: mend what it names and run "
            "the maintenance again"
        )


def _steps(upkeep: Need) -> list[tuple[str, str, str]]:
    """Return the rewritings that a table needs: the kind of files, the procedure, and its arguments."""
    steps = []
    if upkeep.rewrites or upkeep.applies:
        order = "strategy => 'sort', " if upkeep.sorted else ""
        steps.append(("data files", "rewrite_data_files", f"{order}options => MAP('min-input-files', '{TOGETHER}')"))
    if upkeep.applies:
        options = f"options => MAP('min-input-files', '{TOGETHER}')"
        steps.append(("delete files", "rewrite_position_delete_files", options))
    if upkeep.merges:
        steps.append(("manifests", "rewrite_manifests", ""))
    return steps
