"""The interface between a run and an engine: named relations, queries in the common SQL, and rows to write to a table.

Backfills, audits and replays use this interface. All queries are in the common SQL (`tailrace.sql`). A relation is a
name that queries can read until the session is closed.
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
"""A function from a table to a table. The input table contains all rows of one or more keys."""


Together: TypeAlias = Callable[[Relation], Query]
"""A function that takes a relation of results, each from one part of the records, and returns the query that combines
them.
"""


@dataclass(frozen=True)
class CountedRelation:
    """A relation with computed rows.

    For each named condition, `counts` has the number of rows that meet the condition.
    """

    relation: Relation
    counts: Mapping[str, int]


class RowGathering(Protocol):
    """A collection of ledger rows in one relation. The rows come from epochs that are folded again."""

    @property
    def relation(self) -> Relation:
        """The relation of the ledger rows that have been added and computed so far."""

    def take(self, stepped: Any, before: Any) -> None:
        """Add the ledger rows of an epoch's result (`Side.step`) to the collection.

        `before` is the state before the epoch. This state is freed once the rows are computed.
        """

    def settle(self) -> None:
        """Compute all ledger rows that have been added but not computed yet."""


class Session(Protocol):
    """A session of an engine, in which queries read the tables of a lake and write to them."""

    lake: Lake
    choice: EngineChoice

    @property
    def direct(self) -> bool:
        """True if this process does the computing, without Spark."""

    def table(
        self, table: str, where: Filter = EVERYTHING, snapshot: int | None = None, of: Lake | None = None
    ) -> Relation:
        """Return a relation of a table's rows.

        If `snapshot` is None, the table's current snapshot is read. The table is in the lake `of`, or in the session's
        lake if `of` is None. `where` only skips files: a query that needs exactly the matching rows must also filter
        the rows.
        """

    def log(self, log: Log, where: Filter = EVERYTHING, snapshot: int | None = None) -> Relation:
        """Return a relation of a landed log's rows.

        The columns of the relation have the names that the log declares, even if the table's columns were renamed.
        """

    def relation_of(self, rows: pa.Table) -> Relation:
        """Return a relation of rows that are in this process's memory."""

    def view(self, text: Query) -> Relation:
        """Create a view of a query. The query is computed again each time the view is read."""

    def materialized(self, text: Query) -> Relation:
        """Return a relation of a query's rows, which are computed only once."""

    def counted(self, text: Query, counts: Mapping[str, Condition]) -> CountedRelation:
        """Compute a query's rows now.

        Returns a relation of the rows, and the number of rows that meet each condition.
        """

    def brought(self, text: Query, types: Mapping[str, str], together: Together) -> Relation:
        """Return a relation of a query's rows, with columns of the types `types`.

        If the engine is a cluster and the rows fit into this process's memory, this process fetches the rows. The
        engine may run the query separately on parts of the records. In this case, `together` returns the query that
        combines the results.
        """

    def rows(self, text: Query) -> list[dict[str, Any]]:
        """Return all rows of a query. The query must return only a few rows."""

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        """Return all rows of a query in a human-readable form. The query must return only a few rows.

        Instants of any year are UTC datetimes. Structs and lists are represented as in JSON, with fractions as
        decimals.
        """

    def count(self, relation: Relation) -> int:
        """Count the rows of a relation. The relation is a name or a parenthesized query."""

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        """Return a relation of the records after the definition's steps.

        If a step can fail, the relation contains the column `selections.FAILED`.
        """

    def mapped(self, text: Query, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> Relation:
        """Return a relation of the rows that a Python function computes from a query's rows.

        `types` are the relation's column types.
        """

    def calls_combiners(self, pipeline: Pipeline) -> bool:
        """Prepare the functions of custom combiners; return False if queries of this session cannot call them."""

    def by_key(
        self, text: Query, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> Relation:
        """Return a relation of the rows that a Python function computes from a query's rows.

        Each call of the function gets all rows of one or more keys.
        """

    def side(self, pipeline: Pipeline) -> AnySide:
        """Create the `Side` of a pipeline's stage. The `Side` accepts the bundles that `bundles` yields."""

    def bundles(self, text: Query, epochs: Iterable[int]) -> Iterator[Any]:
        """Yield one bundle for each epoch in `epochs`: the query's rows that have this epoch in the column `_epoch`."""

    def gathered(self, pipeline: Pipeline) -> RowGathering:
        """Open a collection of the ledger rows of a stage's epochs.

        The collection is closed together with the session.
        """

    def write(self, text: Query, branch: Branch, properties: Mapping[str, str], of: Lake | None = None) -> None:
        """Append a query's rows to a branch, in a commit with the properties `properties`.

        The branch is in the lake `of`, or in the session's lake if `of` is None.
        """

    def files(self, text: Query, table: str, times: tuple[int, int] | None = None) -> Sequence[DataFile] | None:
        """Write a query's rows as files that a table does not list yet.

        `times` are bounds of the rows' times in microseconds, if they are known: rows of one partition are not sorted.
        Returns None if the engine cannot write such files.
        """

    def new_panes(self, text: Query, pipeline: Pipeline) -> tuple[Sequence[DataFile], Sequence[DataFile]] | None:
        """Write a query's panes as files of the ledger, and their answers as files of the table of answers.

        The tables do not list the files yet. There must be one pane for each window, and no retraction. The second list
        is empty if there is no table of answers. Returns None if the engine cannot write such files.
        """

    def follower(self, pipeline: Pipeline, owner: str) -> Following:
        """Return the follower that updates a pipeline's answers from its ledger."""

    def free(self, relation: Relation) -> None:
        """Drop a relation before the session ends."""

    def cancel(self) -> None:
        """Cancel the running computation, so that the computation raises an error.

        This method is called from another thread.
        """

    def close(self) -> None:
        """Drop all relations of the session."""
