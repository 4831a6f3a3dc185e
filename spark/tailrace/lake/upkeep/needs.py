"""Find the maintenance that keeps a definition's tables small and fast, from their metadata only (rule X3).

Small files should be merged, delete files applied, manifests merged, and unneeded snapshots and the leftovers of
crashed writers removed. `tailrace.operate.maintenance` does this work; no JVM is needed to find out what is necessary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent

from tailrace.lake.catalog.lake import MAIN, Lake, ref_of
from tailrace.lake.catalog.table_protocol import STAMP
from tailrace.lake.commit.retention import Removal, find_expired, snapshots_needed_by
from tailrace.lake.commit.runs_table import runs_named
from tailrace.lake.commit.signal_tables import Completions, Signals
from tailrace.lake.digests.commit_digest import manifest_files
from tailrace.lake.schema.contracts import Contract, log_contract, rejected_contract
from tailrace.lake.schema.owned_tables import archives, tables_of
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.lake.upkeep.leftovers import leftover_names, leftover_tables
from tailrace.lake.upkeep.rewriting import partition_of
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition

TOGETHER = 5
"""The number of small files in a partition, or of delete files in a table, at which these files are merged."""

MANIFESTS = 20
"""The number of manifests at which the manifests are merged."""

_TARGET = 512 * 1024 * 1024
"""The default target size of data files, in bytes."""

_SMALL = 0.75
"""A file counts as small below this fraction of the target size, as in Iceberg's own rewrites."""

Reader = tuple[str, str]


@dataclass(frozen=True)
class UpkeepTable:
    """A table that is maintained. `stage` is the definition to which it belongs, or None for a log's table.

    `readers` are the tables that read this table, each with the property of its commits that names the last snapshot
    read. `archived` means that this table's commits are archived before their snapshots expire.
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
        """Whether rows are deleted by means of delete files, which readers apply."""
        return self.contract.properties.get("write.merge.mode") == "merge-on-read"


@dataclass(frozen=True)
class Need:
    """The maintenance that a table needs now; `names` are its unused branches and tags.

    `files` is the number of data files; `small` of these files should be merged, and `former` is the number of small
    files under a former partitioning. `deletes` is the number of delete files; `sorted` means that the table has a sort
    order.
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
    """Return the existing tables of a definition and of its inputs."""
    found: dict[str, UpkeepTable] = {}
    for stage in chain(definition):
        for one in _tables_of_stage(lake, stage):
            found.setdefault(one.name, one)
    return [one for one in found.values() if lake.has(one.name)]


def _tables_of_stage(lake: Lake, stage: Definition) -> Iterator[UpkeepTable]:
    own = tables_of(stage)
    for log in stage.sources:
        yield from (UpkeepTable(of(log), archived=True) for of in (log_contract, rejected_contract))
        # A log's control tables may exist even if the definition does not wait for their rows.
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
    runs = {}
    if table.stage is not None and lake.has(runs_name(table.stage.name)):
        runs = {one.run: one for one in runs_named(lake, table.stage.name)}
    # The readers' positions are read before the table is loaded, because readers only move forward.
    needed = needed_snapshots(lake, table)
    loaded, settings = lake.table(table.name), lake.settings
    current = loaded.metadata.snapshot_by_id(ref_of(loaded, MAIN) or -1)
    manifests = [] if current is None else current.manifests(loaded.io)
    files = list(manifest_files(manifests, loaded.io))
    data = [file for file in files if file.content is DataFileContent.DATA]
    limit = _SMALL * int(loaded.properties.get("write.target-file-size-bytes", _TARGET))
    small = [file for file in data if file.file_size_in_bytes < limit]
    return Need(
        table,
        files=len(data),
        # Partitions with only a few small files are not merged.
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
    """Return the snapshots from which a table's readers will continue."""
    return [snapshot for reader, named in one.readers for snapshot in snapshots_needed_by(lake, reader, named)]
