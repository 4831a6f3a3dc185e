"""Find the maintenance that a definition's tables need to stay small and quick, by their metadata alone (rule X3).

Small files are worth writing together, delete files worth applying, manifests worth merging; snapshots that nobody can
want any more go, and so do the leftovers of dead writers. `tailrace.operate.maintenance` does the work; no JVM is
needed here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from tailrace.lake.catalog.lake import MAIN, Lake, ref_of
from tailrace.lake.commit.readers import STAMP, needed_of
from tailrace.lake.commit.retention import Going, expired
from tailrace.lake.commit.runs_table import runs_named
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.owned_tables import archives, complete_contract, contracts, signals_contract, tables_of
from tailrace.lake.schema.table_names import ledger_name, rejected_name, runs_name
from tailrace.lake.upkeep.leftovers import leftover_names, leftover_tables
from tailrace.lake.upkeep.rewriting import partition_of
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition

TOGETHER = 5
"""The number of small files in a partition, or of delete files in a table, from which on they are written together."""

MANIFESTS = 20
"""The number of manifests from which on they are merged."""

_TARGET = 512 * 1024 * 1024
"""The target size of data files, in bytes, where the table does not say another one."""

_SMALL = 0.75
"""The part of the target size below which a file counts as small: Iceberg's own measure when it rewrites."""

_SEEN = {"__signals": "signals_seen", "__complete": "complete_seen"}
"""The properties by which a log's commits say how far its control tables were read, by the tables' endings."""

Reader = tuple[str, str]


@dataclass(frozen=True)
class UpkeepTable:
    """A table that is maintained. `stage` is the definition that it is of; None of a table of a log.

    `readers` are the tables whose last commits say up to which snapshot they have read this one, each with the name of
    the property that says so; `archived` says that this table's commits are wanted when their snapshots have expired.
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
        """Whether rows are deleted from the table by delete files, which are applied on reading."""
        return self.contract.properties.get("write.merge.mode") == "merge-on-read"


@dataclass(frozen=True)
class Need:
    """The maintenance that a table needs as it stands; `names` are the branches and tags that nobody uses any more.

    `files` counts its data files, of which `small` are worth writing together and `former` lie in partitions of a
    former partitioning, and `deletes` its delete files; `sorted` says that the table has an order.
    """

    table: UpkeepTable
    files: int
    small: int
    deletes: int
    manifests: int
    snapshots: int
    going: Going
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
    """The maintenance that the tables of a definition need, and the tables of replays that died."""

    needs: tuple[Need, ...]
    leftovers: tuple[str, ...]


def upkeep_tables(lake: Lake, definition: Definition) -> list[UpkeepTable]:
    """List the tables of a definition and of those that it reads, as far as they exist."""
    found: dict[str, UpkeepTable] = {}
    for stage in chain(definition):
        # A log's control tables may exist though the definition does not wait for their rows.
        control = [of(log) for log in stage.sources for of in (signals_contract, complete_contract)]
        for contract in (*contracts(stage), *control, *archives(stage)):
            found.setdefault(contract.table, _upkeep_table(stage, contract))
    return [one for one in found.values() if lake.has(one.name)]


def _upkeep_table(stage: Definition, contract: Contract) -> UpkeepTable:
    if contract.table == ledger_name(stage.name):
        followed = tables_of(stage).answers is not None
        return UpkeepTable(contract, stage, ((stage.name, STAMP),) if followed else (), archived=True)
    logs = [log.name for log in stage.sources]
    if any(contract.table in (log, rejected_name(log)) for log in logs):
        return UpkeepTable(contract, archived=True)
    for log in logs:
        if (seen := _SEEN.get(contract.table.removeprefix(log))) is not None:
            return UpkeepTable(contract, readers=((log, seen),))
    return UpkeepTable(contract, stage)


def planned(lake: Lake, definition: Definition, now: int) -> UpkeepPlan:
    """Find the maintenance that a definition's tables need; `now` is in milliseconds.

    Raises `LakeError` where there is no ledger.
    """
    lake.table(ledger_name(definition.name))
    names = lake.tables
    after = lake.settings.keep_leftovers
    leftovers = (one for stage in chain(definition) for one in leftover_tables(lake, stage, names, now, after))
    return UpkeepPlan(tuple(need(lake, one, now) for one in upkeep_tables(lake, definition)), tuple(sorted(leftovers)))


def need(lake: Lake, table: UpkeepTable, now: int) -> Need:
    """Find the maintenance that one table needs; `now` is in milliseconds."""
    runs = {}
    if table.stage is not None and lake.has(runs_name(table.stage.name)):
        runs = {one.run: one for one in runs_named(lake, table.stage.name)}
    # The readers' places are read before the table: readers only go forward meanwhile.
    needed = needed_snapshots(lake, table)
    loaded = lake.table(table.name)
    small, files, deletes, manifests, former = _files(loaded)
    settings = lake.settings
    return Need(
        table,
        files,
        small,
        deletes,
        manifests,
        len(loaded.metadata.snapshots),
        expired(loaded, now, settings.keep_snapshots, needed),
        tuple(leftover_names(loaded, runs, now, settings.keep_leftovers)),
        former,
        bool(loaded.sort_order().fields),
    )


def needed_snapshots(lake: Lake, one: UpkeepTable) -> list[int]:
    """List the snapshots of a table that its readers go on from."""
    return [snapshot for reader, named in one.readers for snapshot in needed_of(lake, reader, named)]


def _files(table: Table) -> tuple[int, int, int, int, int]:
    """Count the small data files worth writing together, data files, delete files and manifests of a table.

    And the small files that lie in partitions of a former partitioning.
    """
    current = table.metadata.snapshot_by_id(ref_of(table, MAIN) or -1)
    if current is None:
        return 0, 0, 0, 0, 0
    manifests = current.manifests(table.io)
    limit = _SMALL * int(table.properties.get("write.target-file-size-bytes", _TARGET))
    small: Counter[object] = Counter()
    files = deletes = former = 0
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            if file.content is not DataFileContent.DATA:
                deletes += 1
                continue
            files += 1
            if file.file_size_in_bytes < limit:
                small[partition_of(file)] += 1
                former += file.spec_id != table.metadata.default_spec_id
    # Small files that are alone in a partition, or with a few others, are left as they are.
    return sum(count for count in small.values() if count >= TOGETHER), files, deletes, len(manifests), former
