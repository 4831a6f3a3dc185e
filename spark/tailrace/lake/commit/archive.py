"""Keep the properties of the commits of logs and ledgers past the expiry of their snapshots (rule X3).

The clock of an epoch, its watermarks, signals and offsets are in the properties of its commit (`epoch_properties`). A
replay, a catch-up and an audit read those of all epochs there were. So before snapshots expire, their properties go
into a table beside the log or ledger, a row each; readers combine both. Archiving a snapshot again does nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.snapshots import Operation, Snapshot

from tailrace.lake.catalog.lake import Lake, head_of, lineage, properties_of
from tailrace.lake.catalog.table_protocol import BEGINS
from tailrace.lake.digests.commit_digest import CHECKSUMS, DIGEST, CommitDigest
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.owned_tables import commits_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import instant, moment


@dataclass(frozen=True)
class ArchivedCommit:
    """A commit to a table's main branch: its properties, and the number of rows that it `added`.

    `sequence` is Iceberg's sequence number, and `at` the instant of the commit, in microseconds. A commit that only
    wrote existing rows anew added none. `proof` is what Iceberg and the commit's digest say of it (`PROOF`).
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
        """The commit's digest; None where it has none, as it was by Spark, another's, or before there were digests."""
        return CommitDigest.parsed(self.proof.get(DIGEST, ""))

    @property
    def by_spark(self) -> bool:
        """Whether Spark made the commit."""
        return any(name in self.proof for name in _SPARK)

    def follows(self, earlier: ArchivedCommit) -> bool:
        """Tell whether this commit may be the next one after another."""
        if self.parent is not None:
            return self.parent == earlier.snapshot
        # In the metadata that pyiceberg writes, a snapshot has no parent any more once we removed its parent.
        digest = self.digest
        return digest is None or earlier.digest is None or digest.since == earlier.snapshot


_SPARK = ("app-id", "spark.app.id")

PROOF = ("operation", "added-records", "deleted-records", DIGEST, CHECKSUMS, *_SPARK)
"""What is kept of a snapshot's summary beside our properties, by which an audit tells whose the commit is."""

_KEPT = "iceberg:"
"""The prefix of the names of `PROOF` among what the archive has of a commit."""


@dataclass(frozen=True)
class Commits:
    """The commits of a table's main branch, the first one first; `whole` says that none is missing."""

    all: tuple[ArchivedCommit, ...]
    whole: bool


def archive(lake: Lake, table: str, snapshots: Iterable[Snapshot]) -> None:
    """Archive the properties of these snapshots of a log or a ledger."""
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
        try:
            lake.enter(name, rows, {}, expected)
            return
        except MovedError:
            # Another process archived first, perhaps the same snapshots.
            continue


def commits(lake: Lake, table: str, until: int | None = None) -> Commits:
    """Read the commits of a table's main branch: those of its snapshots, and before them the archived ones.

    `until` is the snapshot to end with, the current one where it is left out. The commits are of one generation.
    """
    loaded = lake.table(table)
    # The archive is read after the snapshots: those that expire in between are in the archive by then.
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
    """Name the archive of a table's commits; None where it has none, as a table of answers, whose ledger has one."""
    name = commits_contract(table).table
    return name if lake.has(name) and not lake.has(ledger_name(table)) else None


def _whole(found: list[ArchivedCommit]) -> bool:
    """Tell whether each commit follows the one before it, from the table's first commit on."""
    # Without its parent a snapshot looks like a table's first one, which is told by its sequence number.
    first = bool(found) and (found[0].sequence == 1 or BEGINS in found[0].properties)
    return first and all(later.follows(earlier) for earlier, later in itertools.pairwise(found))


def _commit(snapshot: Snapshot) -> ArchivedCommit:
    summary = snapshot.summary
    brought = summary is not None and summary.operation is Operation.APPEND
    added = summary.additional_properties.get("added-records", "0") if summary and brought else "0"
    return ArchivedCommit(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number or 0,
        snapshot.timestamp_ms * 1000,
        int(added),
        properties_of(snapshot),
        {} if summary is None else _proof({**summary.additional_properties, "operation": summary.operation.value}),
    )


def _proof(summary: Mapping[str, str]) -> dict[str, str]:
    return {name: str(summary[name]) for name in PROOF if name in summary}


def _row(commit: ArchivedCommit) -> dict[str, Any]:
    return {
        "snapshot": commit.snapshot,
        "parent": commit.parent,
        "sequence": commit.sequence,
        "at": moment(commit.at),
        "epoch": int(commit.properties["epoch"]) if "epoch" in commit.properties else None,
        "added": commit.added,
        "said": json.dumps(_said(commit), sort_keys=True),
    }


def _archived(row: Mapping[str, Any]) -> ArchivedCommit:
    numbers = (row["snapshot"], row["parent"], row["sequence"])
    said: dict[str, str] = json.loads(row["said"])
    proof = {name.removeprefix(_KEPT): said.pop(name) for name in [*said] if name.startswith(_KEPT)}
    return ArchivedCommit(*numbers, instant(row["at"]), row["added"], said, proof)


def _said(commit: ArchivedCommit) -> dict[str, str]:
    return {**commit.properties, **{_KEPT + name: value for name, value in commit.proof.items()}}
