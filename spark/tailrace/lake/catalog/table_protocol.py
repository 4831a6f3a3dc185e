"""What the commit protocol asks of a lake: branches that move only from where they were seen (rules X1 and X2).

`Lease`, `Branch`, `Runs`, `Following` and `Replacing` are written against this, and against nothing else of a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tailrace.lake.catalog.events import Notice
from tailrace.lake.schema.contracts import Contract

MAIN = "main"

BACKFILLED = "backfilled"
"""A backfill's commit names its run and the range that it replaced by it (`commit.range_replacement`)."""

BEGINS = "begins"
"""What the first commit of a generation says: what came before it is another one's (`generations`)."""

MAINTAINED = "maintained"
"""A commit of maintenance that repeats the last epoch's properties has it (`commit.epoch_properties`)."""


def repeated(properties: Mapping[str, str], *but: str) -> dict[str, str]:
    """What a commit beside the stream repeats of the one before it: all but what that one says of itself alone.

    >>> repeated({"epoch": "7", MAINTAINED: "true", "lender": "3"}, "lender")
    {'epoch': '7'}
    """
    own = (BACKFILLED, BEGINS, MAINTAINED, *but)
    return {name: value for name, value in properties.items() if name not in own}


@dataclass(frozen=True)
class Head:
    """Where a branch of a table stands: its snapshot, and what the last of our commits below it says of itself.

    `properties` holds our snapshot properties without their prefix. A foreign commit, a compaction say, is looked
    through. `records` is how many the snapshot holds, deleted ones included, and None where it does not say.
    """

    snapshot: int | None
    properties: Mapping[str, str]
    records: int | None = None

    def number(self, name: str, default: int = -1) -> int:
        """A property as a number."""
        return int(self.properties.get(name, default))


class Commit(NamedTuple):
    """A commit of a table: its snapshot, and what it says of itself; nothing, if it is a foreign one."""

    snapshot: int
    properties: Mapping[str, str]


def standing(commits: Sequence[Commit]) -> Head:
    """Where commits stand, of which the first is the latest.

    >>> standing([Commit(3, {}), Commit(2, {"epoch": "7"}), Commit(1, {"epoch": "6"})])
    Head(snapshot=3, properties={'epoch': '7'}, records=None)
    """
    if not commits:
        return Head(None, {})
    return Head(commits[0].snapshot, next((commit.properties for commit in commits if commit.properties), {}))


@dataclass(frozen=True)
class Change:
    """Files that are written and wait to be added to a table, and those of it that they take the place of."""

    added: tuple[Any, ...]
    removed: tuple[Any, ...] = ()


class Tables(Protocol):
    """The tables of a lake. Every change is one atomic commit of one table.

    A change that gives the snapshot it expects raises `MovedError` where the branch stands elsewhere; nothing of it is
    there then, unless its own reply was lost on the way: whoever tries again looks for itself among the commits.
    """

    @property
    def tell(self) -> Callable[[Notice], None]:
        """Who hears what happens to the tables."""

    def spark_name(self, table: str, branch: str | None = None) -> str:
        """What an engine calls a table, or a branch of it."""

    def ensure(self, contract: Contract, properties: Mapping[str, str] | None = None) -> object:
        """Make a table where there is none."""

    def head(self, table: str, branch: str = MAIN) -> Head:
        """Where a branch stands now."""

    def refs(self, table: str) -> Mapping[str, int]:
        """The branches of a table, and the snapshots that they stand at."""

    def commits(self, table: str) -> Sequence[Commit]:
        """The commits of main, the latest first, as far as they are kept."""

    def move(self, table: str, branch: str, to: int, expected: int | None) -> None:
        """Move a branch to a snapshot if it stands at `expected` (None: if there is no such branch).

        Where it is there already nothing is done.
        """

    def unname(self, table: str, names: Collection[str]) -> None:
        """Remove branches and tags, as far as they are there."""

    def mark(self, table: str, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit an empty snapshot to main that says this; gives its id."""

    def change(
        self, table: str, change: Change, properties: Mapping[str, str], expected: int | None, branch: str = MAIN
    ) -> int:
        """Commit written files to a branch, saying this; gives the new snapshot's id."""

    def graft(self, table: str, staged: int, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit what snapshot `staged` of another branch added to main, saying this; gives the new snapshot's id."""

    def gather(self, table: str) -> None:
        """Put the files of a small table together where there are many; leaves them where another commits meanwhile."""

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        """All rows of a small table, and the snapshot that they are of."""

    def enter(
        self, table: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str], expected: int | None
    ) -> int:
        """Append rows to main, saying this; gives the snapshot's id. Columns that are not given are null."""
