"""The interface of an engine to a run: relations by name, texts of the common SQL, rows to write to a table.

Backfills, audits and replays use it. Every query is in the common SQL (`tailrace.sql`). A relation is a name that
queries may read while the session is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyiceberg.manifest import DataFile

from tailrace.engines.choose import EngineChoice
from tailrace.engines.protocol import AnySide
from tailrace.engines.python.record_calls import OverBatches
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.answers_merge import Following
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Condition, Query, Relation

OverTables: TypeAlias = Callable[[pa.Table], pa.Table]
"""A function from a table with all rows of some keys to a table."""


Together: TypeAlias = Callable[[Relation], Query]
"""A function that writes the query that combines the answers over parts of the records."""


@dataclass(frozen=True)
class CountedRelation:
    """A computed relation, and the number of its rows that meet each condition."""

    relation: Relation
    counts: Mapping[str, int]


class RowGathering(Protocol):
    """The ledger rows of epochs that are folded again, collected in one relation."""

    @property
    def relation(self) -> Relation:
        """The relation of the rows that were taken and settled so far."""

    def take(self, stepped: Any, before: Any) -> None:
        """Take the rows of an epoch's result (`Side.step`).

        The state before the epoch is freed once the rows are computed.
        """

    def settle(self) -> None:
        """Compute all rows that were taken and are not computed yet."""


class Session(Protocol):
    """An engine that works on the tables of a lake."""

    lake: Lake
    choice: EngineChoice

    @property
    def direct(self) -> bool:
        """True if this process does the computing, without Spark."""

    def table(
        self, table: str, where: Filter = EVERYTHING, snapshot: int | None = None, of: Lake | None = None
    ) -> Relation:
        """Name a relation of a table's rows, as of `snapshot` if given.

        The table is in the lake `of`, or in the session's lake. `where` only skips files: a query that needs just the
        rows that meet it has to filter rows as well.
        """

    def log(self, log: Log, where: Filter = EVERYTHING, snapshot: int | None = None) -> Relation:
        """Name a relation of a landed log's rows, under the declared names of its columns even if they were renamed."""

    def relation_of(self, rows: pa.Table) -> Relation:
        """Return a relation of rows that are in memory."""

    def view(self, text: Query) -> Relation:
        """Name a query as a view, which is computed again wherever it is read."""

    def materialized(self, text: Query) -> Relation:
        """Name a relation of a query's rows that is computed once."""

    def counted(self, text: Query, counts: Mapping[str, Condition]) -> CountedRelation:
        """Compute a query's rows as a relation now, and count the rows that meet each condition."""

    def brought(self, text: Query, types: Mapping[str, str], together: Together) -> Relation:
        """Name a relation of a query's rows, with columns of these types; if the rows fit, they come into this process.

        The query may be answered over parts of the records; `together` then combines the answers.
        """

    def rows(self, text: Query) -> list[dict[str, Any]]:
        """Return all rows of a query that has few."""

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        """Return all rows of a query that has few, in a form for people.

        Instants of any year are UTC datetimes. Structs and lists are as in JSON, with fractions as decimals.
        """

    def count(self, relation: Relation) -> int:
        """Count the rows of a relation: a name, or a query in brackets."""

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        """Name a relation of the records after the steps, with column `selections.FAILED` if a step may fail."""

    def mapped(self, text: Query, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> Relation:
        """Name a relation of the rows, with these column types, that a Python function makes from a query's rows."""

    def by_key(
        self, text: Query, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> Relation:
        """Name a relation of the rows that a Python function makes from a query's rows, in a call for each key."""

    def side(self, pipeline: Pipeline) -> AnySide:
        """Open the side of a stage; it takes the bundles of `bundles`."""

    def bundles(self, text: Query, epochs: Iterable[int]) -> Iterator[Any]:
        """Yield a bundle for each of these epochs: the rows of a query with the epoch in column `_epoch`."""

    def gathered(self, pipeline: Pipeline) -> RowGathering:
        """Open a collection of ledger rows of a stage's epochs, which is closed with the session."""

    def write(self, text: Query, branch: Branch, properties: Mapping[str, str], of: Lake | None = None) -> None:
        """Append a query's rows to a branch of the lake `of`, or of the session's, in a commit with these
        properties."""

    def files(self, text: Query, table: str) -> Sequence[DataFile] | None:
        """Write a query's rows as files that a table does not list yet; None where the engine cannot."""

    def follower(self, pipeline: Pipeline, owner: str) -> Following:
        """Return the follower that updates the answers of a pipeline from its ledger."""

    def free(self, relation: Relation) -> None:
        """Drop a relation before the session ends."""

    def cancel(self) -> None:
        """Cancel the running computation, which then fails; another thread calls this."""

    def close(self) -> None:
        """Drop all relations."""
