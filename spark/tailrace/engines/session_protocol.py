"""The interface of an engine to a run: relations by name, texts of the common SQL, rows to write to a table.

Backfills, audits and replays are written against it. Every text is in the common SQL (`tailrace.sql`); a relation is a
name that texts may read for as long as the session is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyiceberg.manifest import DataFile

from tailrace.engines.choose import EngineChoice
from tailrace.engines.protocol import AnySide
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.answers_merge import Following
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Condition, Query, Relation

OverBatches: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function from Arrow batches to Arrow batches; a batch is handed out only after the one before it was taken."""

OverTables: TypeAlias = Callable[[pa.Table], pa.Table]
"""A function from a table, with all rows of some keys, to a table."""


Together: TypeAlias = Callable[[Relation], Query]
"""A function that writes the query that puts the answers over parts of the records together."""


@dataclass(frozen=True)
class Counted:
    """A computed relation, and the number of its rows that meet each condition."""

    relation: Relation
    counts: Mapping[str, int]


class RowGathering(Protocol):
    """The ledger rows of epochs that are folded again, collected in a relation."""

    @property
    def relation(self) -> Relation:
        """The name of the relation of the rows that were taken and settled so far."""

    def take(self, stepped: Any, before: Any) -> None:
        """Take the rows of an epoch (`Side.step`); the state before the epoch is freed once they are computed."""

    def settle(self) -> None:
        """Compute the rows that were taken, where the engine has put that off."""


class Session(Protocol):
    """An engine at work on the tables of a lake."""

    lake: Lake
    choice: EngineChoice

    @property
    def direct(self) -> bool:
        """Whether this process computes, without Spark."""

    def table(
        self, table: str, where: Filter = EVERYTHING, snapshot: int | None = None, of: Lake | None = None
    ) -> Relation:
        """Name a relation of a table's rows, as of `snapshot` if given.

        The lake `of` takes the place of the session's, if given. `where` only skips files: a text that wants just the
        rows that meet it has to filter them as well.
        """

    def log(self, log: Log, where: Filter = EVERYTHING, snapshot: int | None = None) -> Relation:
        """Name a relation of a landed log's rows with the columns that its definition declares, even renamed ones."""

    def relation_of(self, rows: pa.Table) -> Relation:
        """Name a relation of rows that are in memory."""

    def view(self, text: Query) -> Relation:
        """Name a text as a view: it is computed anew wherever it is read."""

    def materialized(self, text: Query) -> Relation:
        """Name a relation of a text's rows that is computed once."""

    def counted(self, text: Query, counts: Mapping[str, Condition]) -> Counted:
        """Compute a text's rows as a relation now, and count the rows that meet each condition."""

    def brought(self, text: Query, types: Mapping[str, str], together: Together) -> Relation:
        """Name a relation of a text's rows, of columns of these types, taken over into this process if they fit.

        The text may be answered over parts of the records, and the answers put together by the query of `together`.
        """

    def rows(self, text: Query) -> list[dict[str, Any]]:
        """Return all rows of a text that has few."""

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        """Return all rows of a text that has few, in the form in which people are shown them.

        Instants of any year are UTC datetimes; structs and lists are as JSON has them, with fractions as decimals.
        """

    def count(self, relation: Relation) -> int:
        """Count the rows of a relation, a query in brackets, or whatever else may stand after FROM."""

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        """Name a relation of the records after the definition's steps; `selections.FAILED` is there if one may fail."""

    def mapped(self, text: Query, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> Relation:
        """Name a relation of the rows, with these column types, that a Python function makes of a text's rows."""

    def by_key(
        self, text: Query, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> Relation:
        """Name a relation of the rows that a Python function makes of a text's rows, all rows of a key in one call."""

    def side(self, pipeline: Pipeline) -> AnySide:
        """Open the side of a stage, which takes the bundles that `bundles` makes."""

    def bundles(self, text: Query, epochs: Iterable[int]) -> Iterator[Any]:
        """Yield the rows of a text as a bundle for each of these epochs, by column `_epoch`."""

    def gathered(self, pipeline: Pipeline) -> RowGathering:
        """Open a collection of ledger rows of a stage's epochs, which lasts as long as the session."""

    def write(self, text: Query, branch: Branch, properties: Mapping[str, str], of: Lake | None = None) -> None:
        """Append a text's rows to a branch, in a commit with these properties; in the lake `of`, if given."""

    def files(self, text: Query, table: str) -> Sequence[DataFile] | None:
        """Write a text's rows as files beside a table, which lists none of them yet; None where the engine cannot."""

    def follower(self, pipeline: Pipeline, owner: str) -> Following:
        """Return the follower that brings the answers of a pipeline up with its ledger."""

    def free(self, relation: Relation) -> None:
        """Drop a relation before the session ends."""

    def cancel(self) -> None:
        """Cancel the running computation, which then fails; called by another thread."""

    def close(self) -> None:
        """Drop all relations."""
