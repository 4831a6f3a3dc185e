"""Execute a run on Spark if the input does not fit on one machine, or if a step is written for Spark.

If all relations of a query are in this process, DuckDB runs the query in this process. Spark runs any other query.
Small results are fetched into this process, which writes them. This process writes a few rows in less time than Spark,
which would need one job for the ledger and another job for the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.engines.choose import EngineChoice, EnginePolicy
from tailrace.engines.duckdb.database.scans import table_bytes
from tailrace.engines.duckdb.database.written_rows import ROWS_A_FILE
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.python.record_calls import OverBatches
from tailrace.engines.session_protocol import CountedRelation, OverTables, Together
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import without_constraints
from tailrace.engines.spark.executions.preparation import schema_of
from tailrace.engines.spark.follower import Follower
from tailrace.engines.spark.relations import SparkRelations
from tailrace.engines.spark.rows.branch_rows import append
from tailrace.engines.spark.rows.gathered_rows import SparkGathering
from tailrace.engines.spark.session import cancellable
from tailrace.engines.spark.side import SparkSide
from tailrace.engines.spark.workers.arrow_frames import arrow_of
from tailrace.engines.spark.workers.python_tasks import try_on_executors
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Condition, Query, Relation, all_of

SMALL = 1_000_000
"""The maximum number of rows that this process fetches from Spark in order to write them itself."""

_ALL = "_all"


class _Table(NamedTuple):
    """A table that a run reads at one snapshot, limited to the files that a filter selects."""

    name: str
    where: Filter
    snapshot: int | None
    lake: Lake

    @property
    def size(self) -> int:
        """The total size, in bytes, of the selected files."""
        return table_bytes(self.lake.table(self.name), self.where, self.snapshot)


class ClusterSession:
    """The session of a run that Spark executes. Large runs use this session.

    The session does not pass file filters to Spark, because Spark derives such filters from the queries.
    """

    direct = False

    def __init__(self, spark: SparkSession, lake: Lake, choice: EngineChoice, *, small: bool) -> None:
        """Open the session.

        `small` is true if the run's input would fit into this process, so the run's results would also fit.
        """
        self.spark, self.lake, self.choice, self.small = spark, lake, choice, small
        self._here, self._there = DuckSession(lake, choice), SparkRelations(spark, lake)
        self._logs: dict[Relation, tuple[Log, Filter, int | None]] = {}
        self._readable: dict[Relation, _Table | Query] = {}
        self._bound = EnginePolicy.of(lake.settings).memory
        self._gathered: list[SparkGathering] = []
        self.cancel = cancellable(spark, str(choice))

    def table(
        self, table: str, where: Filter = EVERYTHING, snapshot: int | None = None, of: Lake | None = None
    ) -> Relation:
        relation = self._there.table(table, snapshot, of or self.lake)
        self._readable[relation] = _Table(table, where, snapshot, of or self.lake)
        return relation

    def log(self, log: Log, where: Filter = EVERYTHING, snapshot: int | None = None) -> Relation:
        relation = self._there.log(log, snapshot)
        self._logs[relation] = (log, where, snapshot)
        return relation

    def relation_of(self, rows: pa.Table) -> Relation:
        return self._there.relation_of(rows)

    def frame(self, text: Query) -> DataFrame:
        """Register a query's relations with Spark, and return the query as a Spark data frame."""
        self._lend(self._here.read_by(text))
        return self._there.frame(text)

    def view(self, text: Query) -> Relation:
        relation = self._at(text).view(text)
        if (read := self._there.read_by(text)) and read <= self._readable.keys():
            self._readable[relation] = text
        return relation

    def materialized(self, text: Query) -> Relation:
        return self._at(text).materialized(text)

    def counted(self, text: Query, counts: Mapping[str, Condition]) -> CountedRelation:
        if self._at(text) is self._here:
            with suppress(duckdb.OutOfMemoryException):
                # If the query also reads relations that are on Spark, compute its rows once and store them, so that no
                # table is read twice. Otherwise, a view is enough.
                kept = self._here.materialized if self._there.read_by(text) else self._here.view
                return self._here.tallied(kept(text), counts)
            self._lend(self._here.read_by(text))
        if self.small and (small := self._bring(self._there.frame(text))) is not None:
            return self._here.tallied(small, counts)
        items = [F.count_if(F.expr(condition)).alias(name) for name, condition in counts.items()]
        every = F.count(F.lit(1)).alias(_ALL)
        counted = ObservedCounts(self._there.frame(text), *items, every)
        with without_constraints(self.spark):
            relation = self._there.once(counted.rows.localCheckpoint())
        found = counted.read()
        if found.pop(_ALL) > SMALL:
            return CountedRelation(relation, found)
        small = self._bring(self.spark.table(relation))
        if small is None:
            return CountedRelation(relation, found)
        self.free(relation)
        return self._here.tallied(small, counts)

    def brought(self, text: Query, types: Mapping[str, str], together: Together) -> Relation:
        if (parts := self._by_workers(text, types)) is not None:
            text = together(parts)
            if self._here.has(parts):
                with suppress(duckdb.OutOfMemoryException):
                    # The rows are stored, so they are computed only once although they are counted and later written.
                    # The relation `parts` is then dropped, because it needs more memory than the rows.
                    made = self._here.materialized(text)
                    self._here.free(parts)
                    return made
        if self._at(text) is self._there and self.small:
            small = self._bring(self._there.frame(text))
            if small is not None:
                return small
        return self._at(text).view(text)

    def _by_workers(self, text: Query, types: Mapping[str, str]) -> Relation | None:
        """Run a query that reads only one log, with DuckDB in Python workers on the executors.

        Returns None if Spark itself has to run the query, or if a task fails.
        """
        if (found := self._log_files(text)) is None:
            return None
        log, files = found
        schema = to_arrow_schema(schema_of(types))

        def answered() -> Relation:
            small = self._take(files.fetched(self.spark, text, log, schema, self._bound)) if self.small else None
            if small is not None:
                return small
            return self._there.once(files.answer(self.spark, text, log, schema).localCheckpoint())

        return try_on_executors(answered)

    def _log_files(self, text: Query) -> tuple[Relation, LogFiles] | None:
        """Return the name and the files of the log that a query reads, if the query reads only one log.

        Returns None if the query reads other relations, or if Spark itself should read the log.
        """
        read = self._here.read_by(text) | self._there.read_by(text)
        if len(read) != 1 or not read <= self._logs.keys():
            return None
        (log,) = read
        files = LogFiles.scanned(self.lake, *self._logs[log])
        return None if files is None or not files.worth else (log, files)

    def _bring(self, frame: DataFrame) -> Relation | None:
        """Compute a data frame and fetch its rows into this process. Returns None if there are too many rows."""
        return self._take(arrow_of(frame))

    def _take(self, rows: pa.Table | None) -> Relation | None:
        """Return a relation of the rows that were fetched into this process, or None if there were too many rows.

        If there were too many rows, the session no longer expects later results to be small.
        """
        if rows is None:
            self.small = False
            return None
        return self._here.lent(rows)

    def _at(self, text: Query | Relation) -> DuckSession | SparkRelations:
        """Return the engine that runs a query.

        The engine is DuckDB in this process if this process has, or can read, all relations of the query. This process
        can read tables of Spark if the tables are small. Otherwise the engine is Spark, and the query's relations that
        are in this process are registered with Spark.
        """
        here = self._here.read_by(text)
        if here and self._read_here(self._there.read_by(text) - here):
            return self._here
        self._lend(here)
        return self._there

    def _read_here(self, relations: frozenset[Relation]) -> bool:
        """Create relations in this process that so far are only on Spark.

        Returns False if this process cannot read a relation, or if the relations do not fit into this process.
        """
        tables = list(self._tables(relations))
        known = [table for table in tables if table is not None]
        fits = not relations or (self.small and sum(table.size for table in known) <= self._bound)
        if not fits or len(known) < len(tables):
            return False
        with suppress(duckdb.OutOfMemoryException):
            for relation in relations:
                self._name_here(relation)
            return True
        return False

    def _tables(self, relations: Iterable[Relation]) -> Iterator[_Table | None]:
        """Yield the tables that the relations read. Yield None for each relation that this process cannot read."""
        for relation in relations:
            found = self._readable.get(relation)
            if isinstance(found, Query):
                yield from self._tables(self._there.read_by(found))
            else:
                yield found

    def _name_here(self, relation: Relation) -> None:
        """Create a relation in this process under the name that the relation has on Spark."""
        found = self._readable[relation]
        if self._here.has(relation):
            return
        if isinstance(found, _Table):
            found = all_of(self._here.table(found.name, found.where, found.snapshot, found.lake))
        else:
            for one in self._there.read_by(found):
                self._name_here(one)
        self._here.called(relation, found)

    def _lend(self, relations: Iterable[Relation]) -> None:
        """Register relations of this process with Spark under the same names."""
        for name in relations:
            if not self._there.has(name):
                self._there.lent(name, self._here.fetched(all_of(name)))

    def rows(self, text: Query) -> list[dict[str, Any]]:
        return self._at(text).rows(text)

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        return self._at(text).readable_rows(text)

    def count(self, relation: Relation) -> int:
        (row,) = self.rows(Query(f"SELECT COUNT(*) AS n FROM {relation}"))
        return int(row["n"])

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        return self._at(source).prepared(source, pipeline) if pipeline.each else source

    def mapped(self, text: Query, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> Relation:
        return self._at(text).mapped(text, function, types)

    def calls_combiners(self, pipeline: Pipeline) -> bool:
        return False

    def by_key(
        self, text: Query, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> Relation:
        return self._at(text).by_key(text, key, function, types)

    def side(self, pipeline: Pipeline) -> SparkSide:
        return SparkSide(self.spark, self.lake, pipeline, self.choice, streams=False)

    def bundles(self, text: Query, epochs: Iterable[int]) -> Iterator[DataFrame]:
        return (self._there.frame(Query(f"SELECT * FROM ({text}) WHERE _epoch = {epoch}L")) for epoch in epochs)

    def gathered(self, pipeline: Pipeline) -> SparkGathering:
        made = SparkGathering(self.lake, pipeline)
        self._gathered.append(made)
        return made

    def write(self, text: Query, branch: Branch, properties: Mapping[str, str], of: Lake | None = None) -> None:
        if self._at(text) is self._here:
            with suppress(duckdb.OutOfMemoryException):
                self._here.write(text, branch, properties, of)
                return
            self._lend(self._here.read_by(text))
        append(self._there.frame(text), branch, properties)

    def files(self, text: Query, table: str, times: tuple[int, int] | None = None) -> Sequence[DataFile] | None:
        if (found := self._log_files(text)) is None:
            return None
        log, read = found
        return read.write(self.spark, text, log, self.lake.table(table), ROWS_A_FILE)

    def new_panes(self, text: Query, pipeline: Pipeline) -> None:
        return None

    def follower(self, pipeline: Pipeline, owner: str) -> Follower:
        return Follower(self.lake, pipeline, owner, self._here.connection)

    def free(self, relation: Relation) -> None:
        for place in (self._here, self._there):
            if place.has(relation):
                place.free(relation)

    def close(self) -> None:
        self._there.close()
        while self._gathered:
            self._gathered.pop().close()
        self._here.close()
