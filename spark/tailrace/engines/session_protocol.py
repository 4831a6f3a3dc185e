"""What a run asks of the engine that computes it: relations by name, texts of the common SQL, rows for a table.

A backfill, an audit and a replay are written against this. Every text is the common SQL (`tailrace.sql`); a relation is
a name that texts may read, for as long as the session is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from tailrace.engines.choose import Choice
from tailrace.engines.protocol import Side
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.answers_merge import Following
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.model.definition.chain import Ranged
from tailrace.model.definition.log import Log
from tailrace.model.definition.pipeline import Pipeline

OverBatches: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function over batches of Arrow; none is handed out before the one before it was taken."""

OverTables: TypeAlias = Callable[[pa.Table], pa.Table]
"""A function over all rows of some keys."""


@dataclass(frozen=True)
class Counted:
    """A relation that is computed, and of how many of its rows each condition held."""

    relation: str
    counts: Mapping[str, int]


class Gathering(Protocol):
    """The ledger's rows of epochs that are folded again, put together in a relation."""

    @property
    def relation(self) -> str:
        """The rows that were taken and settled so far."""

    def take(self, stepped: Any, before: Any) -> None:
        """Take the rows of an epoch (`Side.step`); the state before it is let go of once they are computed."""

    def settle(self) -> None:
        """Compute what was taken, where that is put off."""


class Session(Protocol):
    """One engine at work on the tables of a lake."""

    lake: Lake
    choice: Choice

    @property
    def direct(self) -> bool:
        """Whether this process writes the commits itself (`lake.commit.branch`)."""

    def table(self, table: str, where: Filter = EVERYTHING, snapshot: int | None = None, of: Lake | None = None) -> str:
        """Name a relation of a table's rows, as of a snapshot if one is given; of another lake than the session's, too.

        `where` says which files need not be read; whoever wants just the rows that meet it says so in the text, too.
        """

    def log(self, log: Log, where: Filter = EVERYTHING, snapshot: int | None = None) -> str:
        """Name a landed log's rows with the columns that its definition declares, whatever the table calls them now."""

    def given(self, rows: pa.Table) -> str:
        """Name a relation of rows that are in memory."""

    def view(self, text: str) -> str:
        """Name a text; it is computed anew wherever it is read."""

    def kept(self, text: str) -> str:
        """Name a relation that is computed once."""

    def counted(self, text: str, counts: Mapping[str, str]) -> Counted:
        """Compute a relation now, and count its rows by conditions."""

    def rows(self, text: str) -> list[dict[str, Any]]:
        """Give all rows of a text, which has but a few."""

    def shown(self, text: str) -> list[dict[str, Any]]:
        """Give all rows of a text, which has but a few, as people are shown them.

        Instants of any year are UTC datetimes; structs and lists are as JSON has them, with fractions as decimals.
        """

    def count(self, relation: str) -> int:
        """Count the rows of a relation, a query in brackets, or what else may stand after FROM."""

    def prepared(self, source: str, pipeline: Ranged) -> str:
        """Name the records of a relation after the definition's steps, with `selections.FAILED` where one may fail."""

    def mapped(self, text: str, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> str:
        """Name what a Python function makes of a text's rows; it gives rows with these column types."""

    def by_key(
        self, text: str, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> str:
        """Name what a Python function makes of a text's rows, all rows of a key in one call."""

    def side(self, pipeline: Pipeline) -> Side:
        """Give the step of a stage; its bundles are those that `bundles` makes."""

    def bundles(self, text: str, epochs: Iterable[int]) -> Iterator[Any]:
        """Give the rows of a text as a bundle for each of these epochs, which they are by `_epoch`."""

    def gathered(self, pipeline: Pipeline) -> Gathering:
        """Open what takes the ledger's rows of epochs of a stage, for as long as the session is open."""

    def write(self, text: str, branch: Branch, properties: Mapping[str, str], of: Lake | None = None) -> None:
        """Append a text's rows to a branch, in a commit that says this; of another lake than the session's, too."""

    def follower(self, pipeline: Pipeline, owner: str) -> Following:
        """What brings table `p` of a pipeline up with its ledger."""

    def free(self, relation: str) -> None:
        """Let go of a relation before the session ends."""

    def cancel(self) -> None:
        """Make what is being computed fail; called by another thread."""

    def close(self) -> None:
        """Let go of all relations."""
