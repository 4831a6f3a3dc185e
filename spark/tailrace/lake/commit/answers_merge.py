"""Make the answers table follow the ledger table: merge all panes that the answers do not include yet.

The pane with the highest version determines the answer of its window. Streams and backfills both use this procedure, so
there is only one way in which answers change. It is safe to follow the ledger at any time and any number of times: only
a higher version changes a row, and a follower publishes nothing if another writer has changed the answers first (X2,
V1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tailrace.lake.catalog.events import AnswersAdvanced
from tailrace.lake.catalog.table_protocol import STAMP, FileChange, Head, Tables, head_of_commits
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name


class Follows(Protocol):
    """The operations of a follower, which keeps a pipeline's answers up to date with its ledger."""

    def follow(self, *, fresh: int | None = None, files: Sequence[Any] = ()) -> int:
        """Bring the answers up to date; return the ledger snapshot up to which the answers are current."""

    def close(self) -> None:
        """Release the follower's resources."""


@dataclass
class Unfollowed:
    """A follower for a ledger without answers, such as a map's ledger. It only reports the ledger's last snapshot."""

    lake: Tables
    name: str

    def follow(self, *, fresh: int | None = None, files: Sequence[Any] = ()) -> int:
        return int(head_of_commits(self.lake.commits(ledger_name(self.name))).snapshot or -1)

    def close(self) -> None:
        pass


@dataclass
class Following(ABC):
    """A follower of one pipeline's ledger, which writes to its own branch of the answers; subclasses merge the
    panes.
    """

    lake: Tables
    name: str
    owner: str
    branch: Branch = field(init=False)

    def __post_init__(self) -> None:
        self.branch = Branch(self.lake, self.name, f"follow_{self.owner}")

    @abstractmethod
    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        """Merge the ledger rows after snapshot `since`, up to snapshot `until`, into the branch of the answers.

        `stamp` has the properties of the commit. If `since` is None, all ledger rows up to `until` are merged. `fresh`
        means that the ledger rows have one pane for each window and no retraction, and that the answers have no row for
        any of these windows. `empty` means that the answers have no rows. Raises `MovedError` if another writer has
        committed to the answers meanwhile.
        """

    def begin(self) -> None:  # noqa: B027  (an engine need not do anything)
        """Check the engine's preconditions; `follow` calls this method before each attempt to merge."""

    def after_merge(self) -> None:  # noqa: B027  (an engine need not do anything)
        """Do the engine's work that is due after a commit to the answers; `follow` calls this method after each
        commit.
        """

    def follow(self, *, fresh: int | None = None, files: Sequence[Any] = ()) -> int:
        """Merge the ledger's new rows; return the ledger snapshot up to which the answers are current.

        `fresh` is a ledger snapshot whose windows have no rows in the answers yet. If `fresh` is the only new snapshot,
        its rows are appended. For windows without rows in the answers, an append has the same result as a merge, and is
        cheaper. `files` are the files of these rows in the table of answers, if they are written already; they are used
        only for such an append.
        """
        head, snapshot = self._followed(fresh, files)
        self.lake.tell(AnswersAdvanced(self.name, head.number("epoch")))
        return snapshot

    def close(self) -> None:
        """Remove the follower's branch of the answers."""
        self.branch.drop()

    def _followed(self, fresh: int | None, files: Sequence[Any]) -> tuple[Head, int]:
        """Bring the answers up to date.

        Returns a pair: the new head of the answers, and the ledger snapshot up to which the answers are current.
        """
        while True:
            self.begin()
            # Each attempt starts the branch again at the current snapshot, because maintenance may also have committed
            # to the answers.
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
                if only and files:
                    self.branch.hold(FileChange(tuple(files)), stamp)
                else:
                    self.merge(since, last.snapshot, stamp, fresh=only, empty=head.records == 0)
                snapshot = self.branch.publish()
            except MovedError:
                continue
            self.after_merge()
            return Head(snapshot, stamp), last.snapshot
