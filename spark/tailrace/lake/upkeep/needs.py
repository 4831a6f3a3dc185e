"""Find the maintenance that keeps a definition's tables small and fast (rule X3); only the tables' metadata is read.

Maintenance merges small files and manifests, applies delete files, and removes unneeded snapshots and the leftovers of
crashed writers. `tailrace.operate.maintenance` does this work. This module only determines which maintenance is needed,
and needs no JVM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import STAMP
from tailrace.lake.commit.retention import Removal, find_expired, snapshots_needed_by
from tailrace.lake.commit.runs_table import recorded_runs
from tailrace.lake.commit.signal_tables import Completions, Signals
from tailrace.lake.digests.commit_digest import manifest_files, manifests_of
from tailrace.lake.schema.contracts import Contract, log_contract, rejected_contract
from tailrace.lake.schema.owned_tables import archives, tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.upkeep.leftovers import leftover_names, leftover_tables
from tailrace.lake.upkeep.rewriting import partition_of
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition

TOGETHER = 5
"""The minimum number of small files in a partition, or of delete files in a table, at which these files are merged."""

MANIFESTS = 20
"""The minimum number of a table's manifests at which the manifests are merged."""

_TARGET = 512 * 1024 * 1024
"""The default target size of a data file, in bytes."""

_SMALL = 0.75
"""A data file counts as small if its size is less than this fraction of the target size.

Iceberg's own rewrites use the same fraction.
"""

Reader = tuple[str, str]


@dataclass(frozen=True)
class UpkeepTable:
    """A table to maintain. `stage` is the definition to which the table belongs, or None for a log's table.

    `readers` has a pair of names for each table whose writer reads this table. The first name is the name of the
    reading table. The second name is the name of the property in which the reading table's commits record the last
    snapshot that was read. `archived` is True if this table's commits are archived before their snapshots expire.
    """

    contract: Contract
    stage: Definition | None = None
    readers: tuple[Reader, ...] = ()
    archived: bool = False

    @property
    def name(self) -> str:
        return self.contract.table

    @property
    def on_read(self) -> bool:
        """Whether the table's rows are deleted by writing delete files, which readers then apply."""
        return self.contract.properties.get("write.merge.mode") == "merge-on-read"


@dataclass(frozen=True)
class Need:
    """The maintenance that a table needs now; `names` are the table's unused branches and tags.

    `files` is the number of data files, and `small` is the number of small data files that should be merged. `former`
    is the number of small files under a former partitioning. `deletes` is the number of delete files. `sorted` is True
    if the table has a sort order.
    """

    table: UpkeepTable
    files: int
    small: int
    deletes: int
    manifests: int
    snapshots: int
    going: Removal
    names: tuple[str, ...]
    former: int = 0
    sorted: bool = False

    @property
    def rewrites(self) -> bool:
        return self.small >= TOGETHER or self.former > 0

    @property
    def applies(self) -> bool:
        return self.table.on_read and self.deletes >= TOGETHER

    @property
    def merges(self) -> bool:
        return self.manifests >= MANIFESTS


@dataclass(frozen=True)
class UpkeepPlan:
    """The maintenance that a definition's tables need, and the tables that crashed replays and streams left behind."""

    needs: tuple[Need, ...]
    leftovers: tuple[str, ...]


def upkeep_tables(lake: Lake, definition: Definition) -> list[UpkeepTable]:
    """Return the tables to maintain: the existing tables of a definition and of its inputs."""
    found: dict[str, UpkeepTable] = {}
    for stage in chain(definition):
        for one in _tables_of_stage(lake, stage):
            found.setdefault(one.name, one)
    return [one for one in found.values() if lake.has(one.name)]


def _tables_of_stage(lake: Lake, stage: Definition) -> Iterator[UpkeepTable]:
    own = tables_of(stage)
    for log in stage.sources:
        yield from (UpkeepTable(of(log), archived=True) for of in (log_contract, rejected_contract))
        # A log's tables of signals and of completeness are included even if this definition does not wait for rows in
        # them, because the tables may exist.
        control = (Signals(lake, log), Completions(lake, log))
        yield from (UpkeepTable(one.contract, readers=((log.name, one.seen),)) for one in control)
    readers = () if own.answers is None else ((own.answers.table, STAMP),)
    yield UpkeepTable(own.ledger, stage, readers, archived=True)
    yield from (UpkeepTable(one, stage) for one in (own.answers, own.runs, *archives(stage)) if one is not None)


def plan_upkeep(lake: Lake, definition: Definition, now: int) -> UpkeepPlan:
    """Find the maintenance that a definition's tables need; `now` is in milliseconds.

    Raises `LakeError` if the definition has no ledger.
    """
    lake.table(ledger_name(definition.name))
    names = lake.tables
    after = lake.settings.keep_leftovers
    leftovers = (one for stage in chain(definition) for one in leftover_tables(lake, stage, names, now, after))
    return UpkeepPlan(
        tuple(find_need(lake, one, now) for one in upkeep_tables(lake, definition)), tuple(sorted(leftovers))
    )


def find_need(lake: Lake, table: UpkeepTable, now: int) -> Need:
    """Find the maintenance that one table needs; `now` is in milliseconds."""
    runs = {} if table.stage is None else {one.run: one for one in recorded_runs(lake, table.stage.name)}
    # The readers' positions are read before the table is loaded. Readers only move forward, so every snapshot that a
    # reader still needs is found.
    needed = needed_snapshots(lake, table)
    loaded, settings = lake.table(table.name), lake.settings
    manifests = manifests_of(loaded)
    files = list(manifest_files(manifests, loaded.io))
    data = [file for file in files if file.content is DataFileContent.DATA]
    limit = _SMALL * int(loaded.properties.get("write.target-file-size-bytes", _TARGET))
    small = [file for file in data if file.file_size_in_bytes < limit]
    return Need(
        table,
        files=len(data),
        # A partition with only a few small files is not merged.
        small=sum(count for count in Counter(map(partition_of, small)).values() if count >= TOGETHER),
        deletes=len(files) - len(data),
        manifests=len(manifests),
        snapshots=len(loaded.metadata.snapshots),
        going=find_expired(loaded, now, settings.keep_snapshots, needed),
        names=tuple(leftover_names(loaded, runs, now, settings.keep_leftovers)),
        former=sum(file.spec_id != loaded.metadata.default_spec_id for file in small),
        sorted=bool(loaded.sort_order().fields),
    )


def needed_snapshots(lake: Lake, one: UpkeepTable) -> list[int]:
    """Return the snapshot that each reader of a table has read last; the reader continues from this snapshot."""
    return [snapshot for reader, named in one.readers for snapshot in snapshots_needed_by(lake, reader, named)]
