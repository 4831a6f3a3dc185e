"""Tell of each commit of a table whether it is ours, by the digests that commits carry (`lake.digests`).

Ours are those that continue the chain of digests, those that Spark made with our properties, and those from before the
chain began. Foreign are all others that changed rows, and those that a broken link gives away. A compaction by another
is none: it has as many rows as before, and the rows themselves are compared by audits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.lake.catalog.lake import PREFIX, Lake
from tailrace.lake.commit.archive import ArchivedCommit, commits
from tailrace.lake.digests.commit_digest import ACCEPTED, CHECKSUMS, DIGEST, CommitDigest, linked
from tailrace.model.base.time import text


@dataclass(frozen=True)
class ForeignCommit:
    """A commit that is not ours: its snapshot, its instant in microseconds, and what gives it away."""

    snapshot: int
    at: int
    why: str

    def __str__(self) -> str:
        return f"commit {self.snapshot} of {text(self.at)} {self.why}"


@dataclass(frozen=True)
class CommitHistory:
    """The commits of a table's main branch: how many there are, the foreign ones that nobody has accepted yet, those
    that somebody has, and how many compactions by another or by Spark there were.
    """

    count: int
    foreign: tuple[ForeignCommit, ...]
    accepted: tuple[ForeignCommit, ...]
    compactions: int


def commit_history(lake: Lake, table: str) -> CommitHistory:
    """Judge the commits of a table."""
    history = commits(lake, table).all
    said = (one.properties.get(ACCEPTED, "") for one in history if one.digest is not None)
    accepted = {int(number) for each in said for number in each.split()}
    foreign = [ForeignCommit(one.snapshot, one.at, why) for one, why in _foreign(history)]
    return CommitHistory(
        len(history),
        tuple(one for one in foreign if one.snapshot not in accepted),
        tuple(one for one in foreign if one.snapshot in accepted),
        sum(map(_compaction, history)),
    )


def _foreign(history: tuple[ArchivedCommit, ...]) -> Iterator[tuple[ArchivedCommit, str]]:
    """Yield the commits that are not ours, each with what tells."""
    last: ArchivedCommit | None = None
    before: ArchivedCommit | None = None
    for one in history:
        digest = one.digest
        if digest is not None:
            if fault := _broken(one, digest, last, before):
                yield one, fault
            last = one
        elif DIGEST in one.proof:
            yield one, f"has no digest that can be read: {one.proof[DIGEST]!r}"
        elif not one.properties and not _compaction(one):
            yield one, f"is of another hand: {one.proof.get('operation', 'nothing is known of it')}"
        elif one.properties and not one.by_spark and last is not None:
            yield one, "says that it is ours, and has no digest"
        before = one


def _broken(
    one: ArchivedCommit, digest: CommitDigest, last: ArchivedCommit | None, before: ArchivedCommit | None
) -> str | None:
    """Say why a commit does not continue the chain from the `last` that has a digest; None where it does.

    `before` is the commit before it.
    """
    link = ""
    if digest.since is None:
        if before is not None and before is last:
            return f"begins the chain of digests anew after commit {before.snapshot}"
    elif last is None:
        # The commit that it follows has expired, and no archive has it: the link cannot be tried.
        return None
    elif last.snapshot != digest.since:
        return f"follows commit {digest.since}, which is not there, and comes after {last.snapshot}"
    else:
        known = last.digest
        link = "" if known is None else known.link
    properties = {PREFIX + name: value for name, value in one.properties.items()}
    expected = linked(link, one.snapshot, digest.files, properties, one.proof.get(CHECKSUMS, ""))
    return None if expected == digest.link else "is not as it was made: its digest is of other properties or files"


def _compaction(one: ArchivedCommit) -> bool:
    """Tell whether a commit that says nothing of itself only wrote the rows that were there anew."""
    summary = one.proof
    same = summary.get("added-records", "0") == summary.get("deleted-records", "0")
    return not one.properties and summary.get("operation") == "replace" and same
