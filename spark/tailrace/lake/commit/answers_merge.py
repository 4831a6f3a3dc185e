"""Have the answers follow the ledger: merge by version the panes since the snapshot that stamps them.

Streams and backfills both do just this, so there is one way in which the answers change. Following is safe at any time
and any number of times: only a higher version changes a row, and a follower that another overtook publishes nothing
(X2, V1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.lake.catalog.events import Followed
from tailrace.lake.catalog.table_protocol import Head, Tables, standing
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.readers import STAMP
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name


class Follows(Protocol):
    """The operations that a fold or a run needs of a follower of a ledger."""

    def follow(self, *, fresh: int | None = None) -> int:
        """Bring the follower up with the ledger; return the ledger's snapshot that it stands for."""

    def close(self) -> None:
        """Release the follower."""


@dataclass
class Unfollowed:
    """A stand-in for the follower of a ledger that people read itself: that of a map."""

    lake: Tables
    name: str

    def follow(self, *, fresh: int | None = None) -> int:
        return int(standing(self.lake.commits(ledger_name(self.name))).snapshot or -1)

    def close(self) -> None:
        pass


@dataclass
class Following(ABC):
    """A follower that brings one pipeline's answers up with its ledger, on its own branch; the engine merges panes."""

    lake: Tables
    name: str
    owner: str
    branch: Branch = field(init=False)

    def __post_init__(self) -> None:
        self.branch = Branch(self.lake, self.name, f"follow_{self.owner}")

    @abstractmethod
    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        """Merge into the branch what the ledger gained between two snapshots, in a commit with the properties `stamp`.

        `since` is None for all that the ledger holds. Panes that are `fresh` meet no row of the answers, hold no
        retraction, and are one to a window; `empty` says that the answers have no row at all. Raises `MovedError` where
        the answers were moved meanwhile.
        """

    def begin(self) -> None:  # noqa: B027  (an engine need not do anything)
        """Check what has to hold before each try to follow."""

    def followed(self) -> None:  # noqa: B027  (an engine need not do anything)
        """Do what is due after each commit of the answers."""

    def follow(self, *, fresh: int | None = None) -> int:
        """Merge what the ledger has gained; return the ledger's snapshot that the answers now stand for.

        `fresh` is a snapshot of the ledger whose windows have no row in the answers: if no other is to be merged, its
        rows are appended, which gives the same answers and is cheaper.
        """
        head, snapshot = self._followed(fresh)
        self.lake.tell(Followed(self.name, head.number("epoch")))
        return snapshot

    def close(self) -> None:
        """Remove the branch."""
        self.branch.drop()

    def _followed(self, fresh: int | None) -> tuple[Head, int]:
        """Follow the ledger; return the head of the answers then, and the ledger's snapshot that they stand for."""
        while True:
            self.begin()
            # Started each time, as maintenance may have moved the answers, too.
            head = self.branch.start()
            commits = self.lake.commits(ledger_name(self.name))
            last, gained = standing(commits), [commit.snapshot for commit in commits]
            stamped = head.properties.get(STAMP)
            if last.snapshot is None or stamped == str(last.snapshot):
                return head, int(stamped or -1)
            stamp = {STAMP: str(last.snapshot), "epoch": str(last.number("epoch"))}
            since = int(stamped) if stamped and int(stamped) in gained else None
            only = since is not None and gained[:2] == [fresh, since]
            try:
                self.merge(since, last.snapshot, stamp, fresh=only, empty=head.records == 0)
                snapshot = self.branch.publish()
            except MovedError:
                continue
            self.followed()
            return Head(snapshot, stamp), last.snapshot
