"""Archive the properties of a log's or ledger's commits, so that they outlast the commits' snapshots (rule X3).

The clock, watermarks, signals and offsets of an epoch are properties of its commit (`epoch_properties`). A replay, a
catch-up and an audit read the properties of all epochs. So before snapshots expire, their properties are archived as
rows of a separate table for each log or ledger. Readers combine the archive and the remaining snapshots. Archiving a
snapshot again has no effect.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.snapshots import Operation, Snapshot

from tailrace.lake.catalog.lake import Lake, head_of, lineage, properties_of
from tailrace.lake.catalog.table_protocol import BEGINS
from tailrace.lake.digests.commit_digest import CHECKSUMS, DIGEST, CommitDigest, summary_of
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.owned_tables import commits_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import instant, moment


@dataclass(frozen=True)
class ArchivedCommit:
    """A commit to a table's main branch: its properties, and `added`, the number of rows that the commit added.

    `sequence` is Iceberg's sequence number, and `at` is the commit's time in microseconds. `added` is 0 if the commit
    only rewrote existing rows. `proof` has the commit's digest. `proof` also has those entries of Iceberg's summary
    that are needed to check which program made the commit (`PROOF`).
    """

    snapshot: int
    parent: int | None
    sequence: int
    at: int
    added: int
    properties: Mapping[str, str]
    proof: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> CommitDigest | None:
        """The commit's digest, or None if Spark, another program, or a very early version of Tailrace made the
        commit.
        """
        return CommitDigest.parse(self.proof.get(DIGEST, ""))

    @property
    def by_spark(self) -> bool:
        """Whether Spark made the commit."""
        return any(name in self.proof for name in _SPARK)

    def follows(self, earlier: ArchivedCommit) -> bool:
        """Return True if the recorded parent and digest allow this commit to follow directly after the commit
        `earlier`.
        """
        if self.parent is not None:
            return self.parent == earlier.snapshot
        # This commit records no parent. When pyiceberg removes a snapshot, it also removes the reference to this
        # snapshot from the next snapshot, so the digests decide.
        digest = self.digest
        return digest is None or earlier.digest is None or digest.since == earlier.snapshot


_SPARK = ("app-id", "spark.app.id")

PROOF = ("operation", "added-records", "deleted-records", DIGEST, CHECKSUMS, *_SPARK)
"""The entries of a snapshot's summary that are archived, so that an audit can check which program made the snapshot.

Tailrace's own properties are archived in any case.
"""

_KEPT = "iceberg:"
"""The prefix of the property names under which an archived commit stores the entries that `PROOF` lists."""


@dataclass(frozen=True)
class Commits:
    """The commits of a table's main branch, the earliest first. `whole` is True if no commit is missing."""

    all: tuple[ArchivedCommit, ...]
    whole: bool


def archive(lake: Lake, table: str, snapshots: Iterable[Snapshot]) -> None:
    """Archive the properties of the given snapshots of a log or a ledger."""
    commits = [_commit(snapshot) for snapshot in snapshots]
    if not commits:
        return
    name = lake.ensure(commits_contract(table)).name()[-1]
    while True:
        expected, archived = lake.rows(name)
        there = {row["snapshot"] for row in archived}
        rows = [_row(commit) for commit in commits if commit.snapshot not in there]
        if not rows:
            return
        # Another process may write to the archive first, and may archive the same snapshots. The next attempt then
        # reads the archive again.
        with suppress(MovedError):
            lake.enter(name, rows, {}, expected)
            return


def commits(lake: Lake, table: str, until: int | None = None) -> Commits:
    """Read the commits of a table's main branch: first the archived commits, then the commits of existing snapshots.

    `until` is the id of the last snapshot whose commit is read; by default, it is the current snapshot. Only the
    commits of the latest generation are returned.
    """
    loaded = lake.table(table)
    # The snapshots are read before the archive. So even if a snapshot expires in between, its commit is found.
    live = [_commit(snapshot) for snapshot in lineage(loaded, head_of(loaded).snapshot if until is None else until)]
    name = archive_name(lake, table)
    archived = [] if name is None else [_archived(row) for row in lake.table(name).scan().to_arrow().to_pylist()]
    known = {commit.snapshot for commit in live}
    first = min((commit.sequence for commit in live), default=0)
    history = sorted(
        [*live, *(commit for commit in archived if commit.snapshot not in known and commit.sequence < first)],
        key=lambda commit: commit.sequence,
    )
    begins = max((place for place, commit in enumerate(history) if BEGINS in commit.properties), default=0)
    return Commits(tuple(history[begins:]), _whole(history[begins:]))


def archive_name(lake: Lake, table: str) -> str | None:
    """Return the name of the table that archives another table's commits, or None if there is no such archive.

    A table of answers has no archive; only the ledger of these answers has an archive.
    """
    name = commits_contract(table).table
    return name if lake.has(name) and not lake.has(ledger_name(table)) else None


def _whole(found: list[ArchivedCommit]) -> bool:
    """Return True if no commit is missing: the first commit of the table is present, and each commit follows the
    previous one.
    """
    # A snapshot without a parent may have lost its parent, so only the sequence number shows whether a snapshot is the
    # table's first.
    first = bool(found) and (found[0].sequence == 1 or BEGINS in found[0].properties)
    return first and all(later.follows(earlier) for earlier, later in itertools.pairwise(found))


def _commit(snapshot: Snapshot) -> ArchivedCommit:
    summary = dict(summary_of(snapshot))
    if snapshot.summary is not None:
        summary["operation"] = snapshot.summary.operation.value
    added = summary.get("added-records", 0) if summary.get("operation") == Operation.APPEND.value else 0
    return ArchivedCommit(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number or 0,
        snapshot.timestamp_ms * 1000,
        int(added),
        properties_of(snapshot),
        {name: str(summary[name]) for name in PROOF if name in summary},
    )


def _row(commit: ArchivedCommit) -> dict[str, Any]:
    proof = {_KEPT + name: value for name, value in commit.proof.items()}
    return {
        "snapshot": commit.snapshot,
        "parent": commit.parent,
        "sequence": commit.sequence,
        "at": moment(commit.at),
        "epoch": int(commit.properties["epoch"]) if "epoch" in commit.properties else None,
        "added": commit.added,
        "said": json.dumps({**commit.properties, **proof}, sort_keys=True),
    }


def _archived(row: Mapping[str, Any]) -> ArchivedCommit:
    numbers = (row["snapshot"], row["parent"], row["sequence"])
    said: dict[str, str] = json.loads(row["said"])
    proof = {name.removeprefix(_KEPT): said.pop(name) for name in [*said] if name.startswith(_KEPT)}
    return ArchivedCommit(*numbers, instant(row["at"]), row["added"], said, proof)
