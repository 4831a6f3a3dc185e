"""Check whether Tailrace made each commit of a table, by the digests in the commits (`lake.digests`).

If a commit has a digest, it counts as made by Tailrace if the digest continues the chain of digests. If a commit has no
digest, it counts as made by Tailrace if it has Tailrace's properties, and either Spark made it or it is older than the
chain. All other commits are foreign, except compactions by other programs. A compaction does not change the number of
rows, and audits compare the rows themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.lake.catalog.lake import PREFIX, Lake
from tailrace.lake.commit.archive import ArchivedCommit, commits
from tailrace.lake.digests.commit_digest import ACCEPTED, CHECKSUMS, DIGEST, CommitDigest, link_of
from tailrace.model.base.time import text


@dataclass(frozen=True)
class ForeignCommit:
    """A commit that Tailrace did not make: its snapshot, its time in microseconds, and the evidence in words
    (`why`).
    """

    snapshot: int
    at: int
    why: str

    def __str__(self) -> str:
        return f"commit {self.snapshot} of {text(self.at)} {self.why}"


@dataclass(frozen=True)
class CommitHistory:
    """The result of checking the commits on a table's main branch; `count` is the number of these commits.

    `accepted` has the foreign commits that a user has accepted, and `foreign` has all other foreign commits.
    `compactions` is the number of compactions by Spark or another program.
    """

    count: int
    foreign: tuple[ForeignCommit, ...]
    accepted: tuple[ForeignCommit, ...]
    compactions: int


def commit_history(lake: Lake, table: str) -> CommitHistory:
    """Determine which commits of a table Tailrace did not make."""
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
    """Yield each commit that Tailrace did not make, with the evidence in words."""
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
    """Return the reason why a commit does not continue the chain of digests, or None if the commit continues the chain.

    `last` is the latest earlier commit with a digest; `before` is the previous commit, with or without a digest.
    """
    link = ""
    if digest.since is None:
        if before is not None and before is last:
            return f"begins the chain of digests anew after commit {before.snapshot}"
    elif last is None:
        # The previous commit with a digest has expired and is not archived. So it is impossible to check whether the
        # present commit continues the chain of digests.
        return None
    elif last.snapshot != digest.since:
        return f"follows commit {digest.since}, which is not there, and comes after {last.snapshot}"
    else:
        known = last.digest
        link = "" if known is None else known.link
    properties = {PREFIX + name: value for name, value in one.properties.items()}
    expected = link_of(link, one.snapshot, digest.files, properties, one.proof.get(CHECKSUMS, ""))
    return None if expected == digest.link else "is not as it was made: its digest is of other properties or files"


def _compaction(one: ArchivedCommit) -> bool:
    """Return True if a commit without Tailrace's properties only rewrote existing rows."""
    summary = one.proof
    same = summary.get("added-records", "0") == summary.get("deleted-records", "0")
    return not one.properties and summary.get("operation") == "replace" and same
