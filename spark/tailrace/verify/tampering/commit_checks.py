"""Check that a table's commits are all ours, and that its files are those that they list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake, head_of, lineage
from tailrace.lake.commit.commit_history import commit_history
from tailrace.lake.digests.commit_digest import CommitDigest, digest_of, manifest_files
from tailrace.verify.tampering.audit_result import SHOWN, Check


def commits_are_ours(lake: Lake, tables: Iterable[str]) -> Check:
    """Check that all commits of tables are this lake's own, and that their files are those that the commits list."""
    faults, count, notes = list[str](), 0, list[str]()
    for table in tables:
        loaded = lake.table(table)
        history = commit_history(lake, table)
        count += history.count
        faults += (f"{table}: {fault}" for fault in (*history.foreign, *_taken_back(loaded), *_files(loaded)))
        notes += [f"{history.compactions:,} compactions of {table} by Spark or another"] if history.compactions else []
        notes += [f"{len(history.accepted):,} foreign commits of {table} were accepted"] if history.accepted else []
    found = "; ".join(faults[:SHOWN]) + (f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else "")
    detail = "; ".join([f"{count:,} commits", *notes])
    return Check("every commit is this lake's own", not faults, found or detail)


def _taken_back(table: Table) -> Iterator[str]:
    """Say which commits were current once and are not any more, as somebody has moved `main` back."""
    entries = [entry.snapshot_id for entry in table.metadata.snapshot_log]
    for before, now in pairwise(entries):
        if before != now and any(one.snapshot_id == now for one in lineage(table, before)):
            yield f"commit {before} was taken back: main was moved to {now} by another hand"


def _files(table: Table) -> Iterator[str]:
    """Say whether a table lists other files than its last commit says, where that has a digest."""
    snapshot = table.metadata.snapshot_by_id(head_of(table).snapshot or -1)
    digest = CommitDigest.of(snapshot)
    if snapshot is None or digest is None:
        return
    if digest_of(manifest_files(snapshot.manifests(table.io), table.io)) != digest.files:
        yield f"the files that commit {snapshot.snapshot_id} lists are not those that it was made with"
