"""Define the table operations that the commit protocol needs.

A branch moves only if it is still at the snapshot that the writer expects (rules X1 and X2). `Lease`, `Branch`, `Runs`,
`Following` and `RangeReplacement` use only these operations of a catalog.
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
"""The property in which a backfill's commit records the run and the range that the run replaced
(`commit.range_replacement`).
"""

BEGINS = "begins"
"""The property that marks a generation's first commit; earlier commits belong to earlier generations
(`generations`).
"""

MAINTAINED = "maintained"
"""The property that marks a maintenance commit; such a commit repeats the last epoch's properties.

The repeated properties are defined in `commit.epoch_properties`.
"""

STAMP = "ledger_snapshot"
"""The name of the property in which an answers commit records the latest ledger snapshot that the answers include."""

ACCEPTED_FOR = "accepted_for"
"""The name of the property that stores the user's reason for accepting the foreign commits that `ACCEPTED` lists."""


def repeated_properties(properties: Mapping[str, str], *but: str) -> dict[str, str]:
    """Return the properties that a commit outside the stream repeats from the previous commit.

    The properties in `but`, and properties that describe only one commit, are left out.

    >>> repeated_properties({"epoch": "7", MAINTAINED: "true", "lender": "3"}, "lender")
    {'epoch': '7'}
    """
    own = (BACKFILLED, BEGINS, MAINTAINED, ACCEPTED, ACCEPTED_FOR, *but)
    return {name: value for name, value in properties.items() if name not in own}


@dataclass(frozen=True)
class Head:
    """The head of a table's branch: its snapshot, and the properties of Tailrace's last commit up to this snapshot.

    The names in `properties` are given without Tailrace's prefix. Commits by other programs, such as compactions, are
    skipped. `records` is the number of rows in the snapshot, including rows that are marked as deleted, or None if the
    number is unknown.
    """

    snapshot: int | None
    properties: Mapping[str, str]
    records: int | None = None

    def number(self, name: str, default: int = -1) -> int:
        """Return the integer value of a property, or `default` if the property is missing."""
        return int(self.properties.get(name, default))


class Commit(NamedTuple):
    """A commit of a table: its snapshot, and the properties that Tailrace set.

    The commit of another program has no properties.
    """

    snapshot: int
    properties: Mapping[str, str]


def head_of_commits(commits: Sequence[Commit]) -> Head:
    """Return the head of a branch from the list of the branch's commits, which begins with the latest commit.

    >>> head_of_commits([Commit(3, {}), Commit(2, {"epoch": "7"}), Commit(1, {"epoch": "6"})])
    Head(snapshot=3, properties={'epoch': '7'}, records=None)
    """
    if not commits:
        return Head(None, {})
    return Head(commits[0].snapshot, next((commit.properties for commit in commits if commit.properties), {}))


@dataclass(frozen=True)
class FileChange:
    """A change of a table's files: the written files to add, and the files that the added files replace."""

    added: tuple[Any, ...]
    removed: tuple[Any, ...] = ()


class Tables(Protocol):
    """The tables of a lake. Every change is one atomic commit to one table.

    A change with an expected snapshot raises `MovedError` if the branch is at another snapshot. Usually, the change was
    then not made. But the change may have succeeded if only the catalog's reply was lost. So before trying again, look
    for the change among the table's commits.
    """

    @property
    def tell(self) -> Callable[[Notice], None]:
        """The listener that receives notices about the tables."""

    def spark_name(self, table: str, branch: str | None = None) -> str:
        """Return the name that the engine uses for a table, or for a branch of the table."""

    def ensure(self, contract: Contract, properties: Mapping[str, str] | None = None) -> object:
        """Create a table if it is missing."""

    def head(self, table: str, branch: str = MAIN) -> Head:
        """Return the current head of a branch."""

    def refs(self, table: str) -> Mapping[str, int]:
        """Return a table's branches and tags as a mapping from the name to the snapshot's id."""

    def commits(self, table: str) -> Sequence[Commit]:
        """List the retained commits of the main branch, the latest first."""

    def move(self, table: str, branch: str, to: int, expected: int | None) -> None:
        """Move a branch from snapshot `expected` to snapshot `to`; if `expected` is None, create the branch.

        Does nothing if the branch is already at snapshot `to`.
        """

    def unname(self, table: str, names: Collection[str]) -> None:
        """Remove branches and tags by name; names that do not exist are skipped."""

    def mark(self, table: str, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit to main a snapshot that has these properties and changes no rows; return the snapshot's id."""

    def change(self, table: str, change: FileChange, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit a change of files to main, with these properties; return the new snapshot's id.

        The files that the change adds must already be written.
        """

    def graft(self, table: str, staged: int, properties: Mapping[str, str], expected: int | None) -> int:
        """Add to main the files that snapshot `staged` added to another branch; return the new snapshot's id."""

    def gather(self, table: str) -> None:
        """Merge the files of a small table if there are many files; give up if another writer commits meanwhile."""

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        """Read all rows of a small table; return the id of the snapshot that was read, and the rows."""

    def enter(
        self, table: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str], expected: int | None
    ) -> int:
        """Append rows to main in a commit with these properties; return the new snapshot's id.

        A missing column is filled with nulls.
        """
