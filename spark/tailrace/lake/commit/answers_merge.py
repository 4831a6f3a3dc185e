"""Table `p` follows the ledger: a merge by version of the panes since the snapshot that `p` is stamped with.

Streams and backfills both do just this, so there is one way in which `p` changes. It is safe to do at any time and any
number of times: only a higher version changes a row, and a follower that another overtook publishes nothing (X2, V1).
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
    """What a fold or a run asks of what follows a ledger."""

    def follow(self, *, fresh: int | None = None) -> int:
        """Bring what follows up with the ledger; gives the ledger's snapshot that it stands for."""

    def close(self) -> None:
        """Let go of it."""


@dataclass
class Unfollowed:
    """Stands for what would follow a ledger that is itself what people read: that of a map."""

    lake: Tables
    name: str

    def follow(self, *, fresh: int | None = None) -> int:
        return int(standing(self.lake.commits(ledger_name(self.name))).snapshot or -1)

    def close(self) -> None:
        pass


@dataclass
class Following(ABC):
    """Keeps `p` of one pipeline up with its ledger, on a branch of its own. How panes are merged is the engine's."""

    lake: Tables
    name: str
    owner: str
    direct: bool = field(default=False, kw_only=True)
    branch: Branch = field(init=False)

    def __post_init__(self) -> None:
        self.branch = Branch(self.lake, self.name, f"follow_{self.owner}", direct=self.direct)

    @abstractmethod
    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        """Merge into the branch what the ledger gained from one snapshot to another, in a commit that says the stamp.

        `since` is None for all that it holds. Panes that are `fresh` meet no row of `p`, hold no retraction, and are
        one to a window; `empty` says that `p` has no row at all. Raises `MovedError` where `p` was moved meanwhile.
        """

    def begin(self) -> None:  # noqa: B027  (an engine need not do anything)
        """What is to be looked at before each try to follow."""

    def followed(self) -> None:  # noqa: B027  (an engine need not do anything)
        """What is to be done after each commit of `p`."""

    def follow(self, *, fresh: int | None = None) -> int:
        """Merge what the ledger has gained; gives the ledger's snapshot that `p` now stands for.

        `fresh` is a snapshot of the ledger whose windows `p` has no row of: if it is all there is to merge, its rows
        are appended, which is the same and cheaper.
        """
        head, snapshot = self._followed(fresh)
        self.lake.tell(Followed(self.name, head.number("epoch")))
        return snapshot

    def close(self) -> None:
        """Remove the branch."""
        self.branch.drop()

    def _followed(self, fresh: int | None) -> tuple[Head, int]:
        """Where `p` stands then, and the ledger's snapshot that it stands for."""
        while True:
            self.begin()
            # Each time anew: maintenance may have removed a branch that main had left behind for long.
            head = self.branch.start()
            commits = self.lake.commits(ledger_name(self.name))
            reached, gained = standing(commits), [commit.snapshot for commit in commits]
            stamped = head.properties.get(STAMP)
            if reached.snapshot is None or stamped == str(reached.snapshot):
                return head, int(stamped or -1)
            stamp = {STAMP: str(reached.snapshot), "epoch": str(reached.number("epoch"))}
            since = int(stamped) if stamped and int(stamped) in gained else None
            only = since is not None and gained[:2] == [fresh, since]
            try:
                self.merge(since, reached.snapshot, stamp, fresh=only, empty=head.records == 0)
                snapshot = self.branch.publish()
            except MovedError:
                continue
            self.followed()
            return Head(snapshot, stamp), reached.snapshot
