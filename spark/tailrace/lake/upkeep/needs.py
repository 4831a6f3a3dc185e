"""What the tables of a definition need to stay small and quick, told from their metadata without a JVM (rule X3).

Files that are small are worth writing together, delete files worth applying, manifests worth merging; snapshots that
nobody can want any more go, and so does what dead writers left behind. `tailrace.operate.maintenance` does it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from tailrace.lake.catalog.lake import MAIN, Lake, ref_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.readers import STAMP, needed_of
from tailrace.lake.commit.retention import Going, expired
from tailrace.lake.schema.contracts import Contract, archives, complete_contract, contracts, signals_contract
from tailrace.lake.schema.table_names import ledger_name, rejected_name
from tailrace.lake.upkeep.leftovers import leftover_names, leftover_tables, runs_of
from tailrace.model.definition.chain import Definition, chain
from tailrace.model.definition.pipeline import Pipeline

TOGETHER = 5
"""From how many small files or delete files on they are written together; of the former, in one partition."""

MANIFESTS = 20
"""From how many manifests on they are merged."""

_TARGET = 512 * 1024 * 1024
"""The size that data files are written at, in bytes, where the table does not say another one."""

_SMALL = 0.75
"""Which part of that a file is smaller than that is small: Iceberg's own measure when it rewrites."""

_SEEN = {"__signals": "signals_seen", "__complete": "complete_seen"}
"""What a log's commits say of how far they have read its control tables."""

Reader = tuple[str, str]


@dataclass(frozen=True)
class Kept:
    """One table that is maintained.

    `readers` are the tables whose last commits say up to which snapshot they have read this one, each with the name of
    that property; `archived` says that its commits are wanted when their snapshots have expired.
    """

    contract: Contract
    pipeline: Pipeline | None = None
    readers: tuple[Reader, ...] = ()
    archived: bool = False

    @property
    def table(self) -> str:
        return self.contract.table

    @property
    def on_read(self) -> bool:
        """Whether what is deleted from it is deleted on reading it, by delete files."""
        return self.contract.properties.get("write.merge.mode") == "merge-on-read"


@dataclass(frozen=True)
class Need:
    """What one table needs, as it stands; `names` are the branches and tags that nobody uses any more.

    `files` are its data files, of which `small` are worth writing together, and `deletes` its delete files.
    """

    kept: Kept
    files: int
    small: int
    deletes: int
    manifests: int
    snapshots: int
    going: Going
    names: tuple[str, ...]

    @property
    def rewrites(self) -> bool:
        return self.small >= TOGETHER

    @property
    def applies(self) -> bool:
        return self.kept.on_read and self.deletes >= TOGETHER

    @property
    def merges(self) -> bool:
        return self.manifests >= MANIFESTS


@dataclass(frozen=True)
class Plan:
    """What the tables of a definition need, and the tables of replays that died."""

    needs: tuple[Need, ...]
    leftovers: tuple[str, ...]


def kept(lake: Lake, definition: Definition) -> list[Kept]:
    """The tables of a definition and of those that it reads, as far as they are there."""
    found: dict[str, Kept] = {}
    for stage in chain(definition):
        log = stage.source.name
        # What is said to a log from outside may be there though the definition does not wait for it.
        control = (signals_contract(stage.source), complete_contract(stage.source))
        for contract in (*contracts(stage), *control, *archives(stage)):
            found.setdefault(contract.table, _kept(stage, log, contract))
    return [one for one in found.values() if lake.has(one.table)]


def _kept(stage: Definition, log: str, contract: Contract) -> Kept:
    name, pipeline = stage.name, stage if isinstance(stage, Pipeline) else None
    if contract.table == ledger_name(name):
        return Kept(contract, pipeline, ((name, STAMP),) if pipeline else (), archived=True)
    if contract.table in (log, rejected_name(log)):
        return Kept(contract, archived=True)
    seen = _SEEN.get(contract.table.removeprefix(log))
    return Kept(contract, readers=((log, seen),)) if seen else Kept(contract, pipeline)


def planned(lake: Lake, definition: Definition, now: int) -> Plan:
    """What the tables of a definition need; `now` is in milliseconds. Raises `LakeError` where there are none."""
    lake.table(ledger_name(definition.name))
    names = lake.tables
    stages = [stage for stage in chain(definition) if isinstance(stage, Pipeline)]
    after = lake.settings.keep_leftovers
    leftovers = (one for stage in stages for one in leftover_tables(lake, stage, names, now, after))
    return Plan(tuple(need(lake, one, now) for one in kept(lake, definition)), tuple(sorted(leftovers)))


def need(lake: Lake, one: Kept, now: int) -> Need:
    """What one table needs."""
    runs: dict[str, Run] = runs_of(lake, one.pipeline) if one.pipeline else {}
    # What its readers have come to is read first: they only go on meanwhile.
    needed = needed_snapshots(lake, one)
    loaded = lake.table(one.table)
    small, files, deletes, manifests = _files(loaded)
    settings = lake.settings
    return Need(
        one,
        files,
        small,
        deletes,
        manifests,
        len(loaded.metadata.snapshots),
        expired(loaded, now, settings.keep_snapshots, needed),
        tuple(leftover_names(loaded, runs, now, settings.keep_leftovers)),
    )


def needed_snapshots(lake: Lake, one: Kept) -> list[int]:
    """The snapshots of a table that others go on from as they read it."""
    return [snapshot for reader, named in one.readers for snapshot in needed_of(lake, reader, named)]


def _files(table: Table) -> tuple[int, int, int, int]:
    """How many small data files, data files, delete files and manifests a table has."""
    current = table.metadata.snapshot_by_id(ref_of(table, MAIN) or -1)
    if current is None:
        return 0, 0, 0, 0
    manifests = current.manifests(table.io)
    limit = _SMALL * int(table.properties.get("write.target-file-size-bytes", _TARGET))
    small: Counter[object] = Counter()
    files = deletes = 0
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            if file.content is not DataFileContent.DATA:
                deletes += 1
                continue
            files += 1
            if file.file_size_in_bytes < limit:
                small[repr(file.partition)] += 1
    # Alone in a partition, or with a few others, they are left as they are.
    return sum(count for count in small.values() if count >= TOGETHER), files, deletes, len(manifests)
