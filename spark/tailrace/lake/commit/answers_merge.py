"""Make the answers follow the ledger: merge all panes since the last followed snapshot, according to their versions.

Streams and backfills both use this procedure, so there is only one way in which answers change. It is safe to follow at
any time and any number of times: only a higher version changes a row, and a follower that was overtaken publishes
nothing (X2, V1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.lake.catalog.events import AnswersAdvanced
from tailrace.lake.catalog.table_protocol import STAMP, Head, Tables, head_of_commits
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name


class Follows(Protocol):
    """The operations of a ledger's follower, as a fold or a run uses them."""

    def follow(self, *, fresh: int | None = None) -> int:
        """Catch up with the ledger; return the ledger's snapshot that the follower has reached."""

    def close(self) -> None:
        """Release the follower."""


@dataclass
class Unfollowed:
    """A follower that does nothing, for a ledger without answers, such as the ledger of a map."""

    lake: Tables
    name: str

    def follow(self, *, fresh: int | None = None) -> int:
        return int(head_of_commits(self.lake.commits(ledger_name(self.name))).snapshot or -1)

    def close(self) -> None:
        pass


@dataclass
class Following(ABC):
    """A follower of one pipeline's ledger, with its own branch of the answers; an engine merges the panes."""

    lake: Tables
    name: str
    owner: str
    branch: Branch = field(init=False)

    def __post_init__(self) -> None:
        self.branch = Branch(self.lake, self.name, f"follow_{self.owner}")

    @abstractmethod
    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        """Merge the ledger's rows between two snapshots into the branch, in a commit with the properties `stamp`.

        If `since` is None, all rows of the ledger are merged. `fresh` means that there is one pane for each window,
        that no pane is a retraction, and that none of the windows has a row in the answers. `empty` means that the
        answers have no rows. Raises `MovedError` if the answers have moved meanwhile.
        """

    def begin(self) -> None:  # noqa: B027  (an engine need not do anything)
        """Check the engine's preconditions before each attempt to follow."""

    def after_merge(self) -> None:  # noqa: B027  (an engine need not do anything)
        """Do the work that is needed after each commit of the answers."""

    def follow(self, *, fresh: int | None = None) -> int:
        """Merge the ledger's new rows; return the ledger's snapshot that the answers have reached.

        `fresh` is a snapshot of the ledger whose windows have no row in the answers. If `fresh` is the only new
        snapshot, its rows are appended, which has the same result as a merge and is cheaper.
        """
        head, snapshot = self._followed(fresh)
        self.lake.tell(AnswersAdvanced(self.name, head.number("epoch")))
        return snapshot

    def close(self) -> None:
        """Remove the follower's branch."""
        self.branch.drop()

    def _followed(self, fresh: int | None) -> tuple[Head, int]:
        """Follow the ledger; return the answers' new head, and the ledger's snapshot that the answers have reached."""
        while True:
            self.begin()
            # The branch is started for each attempt, because maintenance may also have moved the answers.
            head = self.branch.start()
            commits = self.lake.commits(ledger_name(self.name))
            last, gained = head_of_commits(commits), [commit.snapshot for commit in commits]
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
            self.after_merge()
            return Head(snapshot, stamp), last.snapshot
