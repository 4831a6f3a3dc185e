"""Define the operations that the commit protocol needs: branches move only from an expected snapshot (X1, X2).

`Lease`, `Branch`, `Runs`, `Following` and `RangeReplacement` use only these operations of a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tailrace.lake.catalog.events import Notice
from tailrace.lake.digests.commit_digest import ACCEPTED
from tailrace.lake.schema.contracts import Contract

MAIN = "main"

BACKFILLED = "backfilled"
"""The property in which a backfill's commit records its run and the replaced range (`commit.range_replacement`)."""

BEGINS = "begins"
"""The property that marks a generation's first commit; earlier commits belong to another generation (`generations`)."""

MAINTAINED = "maintained"
"""The property of a maintenance commit, which repeats the last epoch's properties (`commit.epoch_properties`)."""

STAMP = "ledger_snapshot"
"""The property in a commit to the answers that names the ledger's snapshot up to which the answers are current."""

ACCEPTED_FOR = "accepted_for"
"""The property with the reason for which foreign commits were accepted (`ACCEPTED`)."""


def repeated_properties(properties: Mapping[str, str], *but: str) -> dict[str, str]:
    """Return the properties that a commit outside the stream repeats from the previous commit.

    Properties that describe only one commit are left out, and so are the properties named in `but`.

    >>> repeated_properties({"epoch": "7", MAINTAINED: "true", "lender": "3"}, "lender")
    {'epoch': '7'}
    """
    own = (BACKFILLED, BEGINS, MAINTAINED, ACCEPTED, ACCEPTED_FOR, *but)
    return {name: value for name, value in properties.items() if name not in own}


@dataclass(frozen=True)
class Head:
    """The head of a table's branch: its snapshot, and the properties of Tailrace's last commit up to this snapshot.

    `properties` has Tailrace's snapshot properties without their prefix; foreign commits, such as compactions, are
    skipped. `records` is the number of rows in the snapshot, including deleted rows; None if unknown.
    """

    snapshot: int | None
    properties: Mapping[str, str]
    records: int | None = None

    def number(self, name: str, default: int = -1) -> int:
        """Return a property as a number, or `default` if the property is missing."""
        return int(self.properties.get(name, default))


class Commit(NamedTuple):
    """A commit of a table: its snapshot, and Tailrace's properties; a foreign commit has no properties."""

    snapshot: int
    properties: Mapping[str, str]


def head_of_commits(commits: Sequence[Commit]) -> Head:
    """Return the head of a branch, given the branch's commits with the latest first.

    >>> head_of_commits([Commit(3, {}), Commit(2, {"epoch": "7"}), Commit(1, {"epoch": "6"})])
    Head(snapshot=3, properties={'epoch': '7'}, records=None)
    """
    if not commits:
        return Head(None, {})
    return Head(commits[0].snapshot, next((commit.properties for commit in commits if commit.properties), {}))


@dataclass(frozen=True)
class FileChange:
    """Written files to be added to a table, and files of the table that the added files replace."""

    added: tuple[Any, ...]
    removed: tuple[Any, ...] = ()


class Tables(Protocol):
    """The tables of a lake. Every change is one atomic commit to one table.

    A change with an expected snapshot raises `MovedError` if the branch is at another snapshot. Then the change was not
    made, unless only the reply was lost: before trying again, look for the change among the table's commits.
    """

    @property
    def tell(self) -> Callable[[Notice], None]:
        """The listener that receives notices about the tables."""

    def spark_name(self, table: str, branch: str | None = None) -> str:
        """Return the engine's name for a table or for one of its branches."""

    def ensure(self, contract: Contract, properties: Mapping[str, str] | None = None) -> object:
        """Create a table if it is missing."""

    def head(self, table: str, branch: str = MAIN) -> Head:
        """Return the current head of a branch."""

    def refs(self, table: str) -> Mapping[str, int]:
        """Return the names of a table's branches and tags with their snapshots."""

    def commits(self, table: str) -> Sequence[Commit]:
        """List the retained commits of main, the latest first."""

    def move(self, table: str, branch: str, to: int, expected: int | None) -> None:
        """Move a branch to a snapshot if the branch is still at `expected`; None means that it does not exist yet.

        Does nothing if the branch is already at the snapshot.
        """

    def unname(self, table: str, names: Collection[str]) -> None:
        """Remove branches and tags by name; names that do not exist are skipped."""

    def mark(self, table: str, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit an empty snapshot with these properties to main; return the new snapshot's id."""

    def change(self, table: str, change: FileChange, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit already written files and these properties to main; return the new snapshot's id."""

    def graft(self, table: str, staged: int, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit to main the files that snapshot `staged` added to another branch; return the new snapshot's id."""

    def gather(self, table: str) -> None:
        """Merge the files of a small table if it has many files; do nothing if another writer commits meanwhile."""

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        """Read all rows of a small table; return the snapshot that was read, and the rows."""

    def enter(
        self, table: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str], expected: int | None
    ) -> int:
        """Append rows and these properties to main; return the new snapshot's id. Missing columns are null."""
