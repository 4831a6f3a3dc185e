"""The operations that the commit protocol needs of a lake: branches move only from where they were seen (X1 and X2).

`Lease`, `Branch`, `Runs`, `Following` and `Replacing` use these operations, and nothing else of a catalog.
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
"""The property by which a backfill's commit names its run and the replaced range (`commit.range_replacement`)."""

BEGINS = "begins"
"""The property of a generation's first commit: the commits before it are of another generation (`generations`)."""

MAINTAINED = "maintained"
"""The property of a commit of maintenance, which repeats the last epoch's properties (`commit.epoch_properties`)."""

ACCEPTED_FOR = "accepted_for"
"""The property of a commit that accepts foreign ones (`ACCEPTED`) which says why."""


def repeated(properties: Mapping[str, str], *but: str) -> dict[str, str]:
    """Select the properties that a commit beside the stream repeats of the commit before it.

    Left out are the properties that a commit says of itself alone, and those named in `but`.

    >>> repeated({"epoch": "7", MAINTAINED: "true", "lender": "3"}, "lender")
    {'epoch': '7'}
    """
    own = (BACKFILLED, BEGINS, MAINTAINED, ACCEPTED, ACCEPTED_FOR, *but)
    return {name: value for name, value in properties.items() if name not in own}


@dataclass(frozen=True)
class Head:
    """The head of a branch of a table: its snapshot, and the properties of the last of our commits up to it.

    `properties` holds our snapshot properties without their prefix; foreign commits, such as compactions, are skipped
    for them. `records` is how many rows the snapshot holds, deleted ones included; None where it does not say.
    """

    snapshot: int | None
    properties: Mapping[str, str]
    records: int | None = None

    def number(self, name: str, default: int = -1) -> int:
        """Return a property as a number; `default` where there is none."""
        return int(self.properties.get(name, default))


class Commit(NamedTuple):
    """A commit of a table: its snapshot, and its properties of ours; a foreign commit has none."""

    snapshot: int
    properties: Mapping[str, str]


def standing(commits: Sequence[Commit]) -> Head:
    """Return the head of a branch with these commits, the latest first.

    >>> standing([Commit(3, {}), Commit(2, {"epoch": "7"}), Commit(1, {"epoch": "6"})])
    Head(snapshot=3, properties={'epoch': '7'}, records=None)
    """
    if not commits:
        return Head(None, {})
    return Head(commits[0].snapshot, next((commit.properties for commit in commits if commit.properties), {}))


@dataclass(frozen=True)
class FileChange:
    """Written files that wait to be added to a table, and the files of the table that they replace."""

    added: tuple[Any, ...]
    removed: tuple[Any, ...] = ()


class Tables(Protocol):
    """The tables of a lake. Every change is one atomic commit of one table.

    A change that is given the snapshot it expects raises `MovedError` where the branch stands elsewhere. Nothing of the
    change is there then, unless only its reply was lost: whoever tries again looks for it among the commits first.
    """

    @property
    def tell(self) -> Callable[[Notice], None]:
        """The listener that is told what happens to the tables."""

    def spark_name(self, table: str, branch: str | None = None) -> str:
        """Return an engine's name for a table, or for a branch of it."""

    def ensure(self, contract: Contract, properties: Mapping[str, str] | None = None) -> object:
        """Make a table where there is none."""

    def head(self, table: str, branch: str = MAIN) -> Head:
        """Return the head of a branch as it stands now."""

    def refs(self, table: str) -> Mapping[str, int]:
        """Return the snapshots of a table's branches and tags, by name."""

    def commits(self, table: str) -> Sequence[Commit]:
        """List the commits of main that are kept, the latest first."""

    def move(self, table: str, branch: str, to: int, expected: int | None) -> None:
        """Move a branch to a snapshot if it stands at `expected` (None: if there is no such branch).

        Does nothing where the branch stands at the snapshot already.
        """

    def unname(self, table: str, names: Collection[str]) -> None:
        """Remove branches and tags; names that are not there are skipped."""

    def mark(self, table: str, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit an empty snapshot with these properties to main; return its id."""

    def change(self, table: str, change: FileChange, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit written files and these properties to main; return the new snapshot's id."""

    def graft(self, table: str, staged: int, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit to main the files that snapshot `staged` added to another branch; return the new snapshot's id."""

    def gather(self, table: str) -> None:
        """Merge the files of a small table where there are many; leave them where another commits meanwhile."""

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        """Read all rows of a small table; return the snapshot that they are of, and the rows."""

    def enter(
        self, table: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str], expected: int | None
    ) -> int:
        """Append rows and these properties to main; return the snapshot's id. Columns that are not given are null."""
