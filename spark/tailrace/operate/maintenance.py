"""Maintain tables while streams and backfills run (rule X3).

Some steps run in this process, others in Iceberg's procedures.

This process determines from the metadata what each table needs, and merges small files itself if they fit in its
memory. Iceberg's procedures need Spark, which is started when the first procedure is called. If nothing remains to be
rewritten, expired or deleted, Spark is not started.

Wrong commit times are corrected first (`lake.upkeep.time_mending`).

Then the following steps are done for each table, in this order. The tables, branches and tags that crashed writers left
behind are removed. Small files are merged, deleted rows are removed from the data files, and manifests are merged. If
the latest commit is not one of Tailrace's commits, a new commit repeats the properties of Tailrace's last commit. The
properties of expiring commits are archived, and their snapshots expire together with the files that no other snapshot
uses. Files that no snapshot names are deleted.

Maintenance waits for no other process, and no other process waits for maintenance. A writer whose table was changed by
maintenance builds its commit on top of the change (rule X1). If another commit changes files that a rewrite would
replace, the rewrite is dropped, and the next maintenance repeats it. Two maintenance runs at the same time are
therefore harmless.
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
from tailrace.lake.change.generations import generations_beside
from tailrace.lake.change.registry import registry_contracts, registry_lake
from tailrace.lake.commit.archive import archive
from tailrace.lake.commit.epoch_properties import carry_forward
from tailrace.lake.commit.retention import find_expired
from tailrace.lake.metadata.commit_times import now_milliseconds
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.upkeep.needs import (
    TOGETHER,
    Need,
    UpkeepPlan,
    UpkeepTable,
    find_need,
    needed_snapshots,
    plan_upkeep,
    upkeep_tables,
)
from tailrace.lake.upkeep.orphans import orphans
from tailrace.lake.upkeep.rewriting import write_together
from tailrace.lake.upkeep.time_mending import WrongTimes, can_mend, mend_times, wrong_times
from tailrace.model.definition.definition import Definition
from tailrace.sql.terms import quoted

TRIES = 3
"""The maximum number of attempts to rewrite files or expire snapshots, if other commits interfere."""

_OVERTAKEN = re.compile(
    r"(ValidationException|CommitFailedException|Cannot expire \d+. Still referenced|arraySize cannot be negative)"
)
"""A pattern that matches the errors caused by another writer's commit to the same table.

Iceberg raises the last of these errors if the other writer has expired snapshots in the meantime. Fewer snapshots are
then left than Iceberg wants to expire, so Iceberg tries to allocate an array with a negative size.
"""

_ORPHANS = "tailrace_orphans"
"""The name of the view that lists the files to delete. No snapshot names these files. An Iceberg procedure reads the
view.
"""


class MaintenanceError(LakeError):
    """Raised if maintenance failed. Completed steps remain in effect, and no step is half done."""


@dataclass(frozen=True)
class TableMaintenance:
    """The result of maintaining a table.

    `rewritten` maps each kind of files to the number of old files and the number of new files. `expired` is the number
    of expired snapshots, `deleted` is the number of files that were deleted together with these snapshots, and
    `orphans` is the number of deleted files that no snapshot named. `names` are the removed branches and tags.
    `overtaken` lists the procedures that other commits interrupted in every attempt; `by_spark` lists the procedures
    that Spark ran.
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
    """The results of maintaining a definition's tables.

    `dropped` lists the tables that crashed writers had left behind and that were removed.

    `times` lists the tables whose commit times were corrected; `times_left` lists the tables whose commit times are
    still wrong.
    """

    tables: tuple[TableMaintenance, ...]
    dropped: tuple[str, ...]
    times: tuple[WrongTimes, ...] = ()
    times_left: tuple[WrongTimes, ...] = ()


def maintain(
    spark: Starting, lake: Lake, definition: Definition, *, watch: Callable[[str], None] = lambda table: None
) -> Maintenance:
    """Maintain the tables of a definition, the tables of its inputs, and the registries that record claimed ids.

    A computation claims an id before it outputs a record with this id. `watch` is called with the name of each table.
    Spark is started if a table needs it. Raises `LakeError` if there are no tables yet, and `MaintenanceError` if the
    maintenance of a table failed.
    """
    session, registries = when_needed(spark), registry_lake(lake)
    claimed = [one.table for one in registry_contracts(definition)]
    # Correct wrong commit times first, because Spark refuses tables with wrong times, and the ages of snapshots depend
    # on the times.
    own = [one.name for one in upkeep_tables(lake, definition)]
    times = [*mend_times(lake, own), *mend_times(registries, claimed)]
    left = [] if can_mend(lake) else wrong_times(lake, own)
    plan: UpkeepPlan = plan_upkeep(lake, definition, now_milliseconds())
    for leftover in plan.leftovers:
        # Ignore a table that is already gone, because another maintenance run may have dropped the table in the
        # meantime.
        with suppress(LakeError, NoSuchTableError):
            lake.drop(leftover)
    done: list[TableMaintenance] = []

    def maintain_table(at: Lake, table: UpkeepTable, need: Need | None = None) -> None:
        watch(table.name)
        done.append(_Table(session, at, table).maintain(need or find_need(at, table, now_milliseconds())))

    for need in plan.needs:
        maintain_table(lake, need.table, need)
    # The archive table is created when the commits of a table are archived for the first time. The plan does not
    # contain a new archive table, so maintain it here.
    known = {need.table.name for need in plan.needs}
    for table in (one for one in upkeep_tables(lake, definition) if one.name not in known):
        maintain_table(lake, table)
    for contract in registry_contracts(definition):
        if registries.has(contract.table):
            maintain_table(registries, UpkeepTable(contract))
    return Maintenance(tuple(done), plan.leftovers, tuple(times), tuple(left))


@dataclass
class _Table:
    """The maintenance of a single table."""

    spark: Callable[[], SparkSession]
    lake: Lake
    table: UpkeepTable
    overtaken: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)

    def maintain(self, upkeep: Need) -> TableMaintenance:
        started = time.perf_counter()
        table = self.table.name
        self.lake.unname(table, upkeep.names)
        here = self._merge_here(upkeep)
        if here[0]:
            upkeep = find_need(self.lake, self.table, now_milliseconds())
        rewritten = dict(filter(None, (self._rewrite(*step) for step in _steps(upkeep))))
        if here[0]:
            own = rewritten.get("data files", (0, 0))
            rewritten["data files"] = (here[0] + own[0], here[1] + own[1])
        carry_forward(self.lake, table)
        gone, deleted = self._expire()
        orphans = self._orphans()
        seconds = time.perf_counter() - started
        outcome = (tuple(self.overtaken), seconds, tuple(dict.fromkeys(self.called)))
        return TableMaintenance(table, rewritten, gone, deleted, orphans, upkeep.names, *outcome)

    def _merge_here(self, upkeep: Need) -> tuple[int, int]:
        """Merge small files in this process if the settings allow it and the files fit into memory.

        Returns the number of old files and the number of new files.
        """
        settings = self.lake.settings
        if settings.engine == "spark" or upkeep.deletes or not upkeep.rewrites:
            return 0, 0
        return write_together(self.lake, self.table.name, TOGETHER, in_bytes(settings.memory))

    def _rewrite(self, what: str, procedure: str, arguments: str) -> tuple[str, tuple[int, int]] | None:
        row = self._try(procedure, lambda: self._call(procedure, arguments))
        if row is None:
            return None
        counted = what.replace(" ", "_")
        taken, made = int(row[f"rewritten_{counted}_count"]), int(row[f"added_{counted}_count"])
        return (what, (taken, made)) if taken else None

    def _expire(self) -> tuple[int, int]:
        """Expire the snapshots that are not needed, and archive the properties of their commits.

        Returns the number of expired snapshots and the number of deleted files.
        """
        counts = self._try("expire_snapshots", self._expire_once)
        return (0, 0) if counts is None else counts

    def _expire_once(self) -> tuple[int, int]:
        needed = needed_snapshots(self.lake, self.table)
        loaded = self.lake.table(self.table.name)
        going = find_expired(loaded, now_milliseconds(), self.lake.settings.keep_snapshots, needed)
        if self.table.archived:
            archive(self.lake, self.table.name, going.cut)
        if not going.removed:
            return 0, 0
        ids = ", ".join(f"{snapshot}L" for snapshot in going.removed)
        # The call lists the snapshots to expire. The cutoff time is so long ago that no other snapshot expires because
        # of its age.
        row = self._call("expire_snapshots", f"older_than => TIMESTAMP '1970-01-02', snapshot_ids => ARRAY({ids})")
        return len(going.removed), sum(int(count or 0) for count in row.asDict().values())

    def _orphans(self) -> int:
        if self.table.stage is not None and generations_beside(self.lake, self.table.stage.name):
            # Keep all files while a generation is being built in a subfolder of the table, because no snapshot of the
            # table names the generation's files yet.
            return 0
        until = datetime.now(UTC) - self.lake.settings.keep_orphans
        older = f"older_than => TIMESTAMP '{until:%Y-%m-%d %H:%M:%S}'"
        if self.lake.settings.on_s3:
            # Let Iceberg's own file client list the files, because Hadoop may have no client for S3.
            return len(self._rows("remove_orphan_files", f"{older}, prefix_listing => true"))
        files = orphans(self.lake, self.table.name, until)
        if not files:
            return 0
        # Iceberg deletes only files in this list, and keeps a listed file if a new snapshot has named it after the list
        # was made.
        columns = "file_path string, last_modified timestamp"
        rows = [(file, until - timedelta(seconds=1)) for file in files]
        self.spark().createDataFrame(rows, columns).createOrReplaceTempView(_ORPHANS)
        return len(self._rows("remove_orphan_files", f"{older}, file_list_view => '{_ORPHANS}'"))

    def _try(self, what: str, work: Callable[[], Any]) -> Any:
        """Call `work` and return its result. Return None if other commits interrupted all `TRIES` attempts."""
        for _ in range(TRIES):
            try:
                return work()
            except (PySparkException, Py4JJavaError) as error:
                if not _OVERTAKEN.search(str(error)):
                    raise self._explain(what, error) from error
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

    def _explain(self, what: str, error: Exception) -> MaintenanceError:
        # The Python error only says that a call to the JVM failed, so use the message of the Java error.
        words = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
        first = words.split("\n", 1)[0]
        return MaintenanceError(
            f"{what} of {self.table.name} failed: {first}; what was done before stays done: mend what it names and run "
            "the maintenance again"
        )


def _steps(upkeep: Need) -> list[tuple[str, str, str]]:
    """Return the rewrites that a table needs.

    Each rewrite is a tuple: the kind of files, the name of the procedure, and the procedure's arguments.
    """
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
