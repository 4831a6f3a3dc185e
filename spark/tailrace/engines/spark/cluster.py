"""A run on Spark, for input that does not fit one machine, and for steps that are written for Spark.

This process writes the results that turn out to be small: for a few rows, a Spark job for the ledger and another for
the answers would take longer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.session import ROWS_A_FILE, DuckSession
from tailrace.engines.session_protocol import Counted, OverBatches, OverTables, Together
from tailrace.engines.spark.branch_rows import append
from tailrace.engines.spark.declared_rows import logged
from tailrace.engines.spark.executions.arrow_frames import arrow_of, frame_of
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import free, unconstrained
from tailrace.engines.spark.executions.per_key import BUCKET, bucketed
from tailrace.engines.spark.executions.preparation import prepare
from tailrace.engines.spark.executions.python_tasks import over_batches, over_group, tried
from tailrace.engines.spark.executions.worker_queries import LogFiles
from tailrace.engines.spark.follower import Follower
from tailrace.engines.spark.gathered_rows import Gathered
from tailrace.engines.spark.preview import readable_rows
from tailrace.engines.spark.session import cancellable
from tailrace.engines.spark.side import SparkSide
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.model.base.types import element_type, struct_fields
from tailrace.model.definition.chain import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.sql.records.selections import is_common, stepped
from tailrace.sql.terms import Condition, Query, Relation, all_of, quoted

SMALL = 1_000_000
"""The most rows of a result of Spark's that this process takes over, to write them itself."""

_ALL = "_all"


class ClusterSession:
    """A run's session on Spark, for large work. It ignores filters of files, as Spark finds its own in the texts."""

    direct = False

    def __init__(self, spark: SparkSession, lake: Lake, choice: EngineChoice, *, small: bool) -> None:
        """Open the session; `small` says that the input would fit this process, and so do the results."""
        self.spark, self.lake, self.choice, self.small = spark, lake, choice, small
        self._checkpointed: dict[Relation, DataFrame] = {}
        self._brought: set[Relation] = set()
        self._gathered: list[Gathered] = []
        self._views: list[str] = []
        self._logs: dict[Relation, tuple[Log, Filter, int | None]] = {}
        self._unread: dict[Relation, Query] = {}
        self._here = DuckSession(lake, choice)
        self.cancel = cancellable(spark, str(choice))

    def table(
        self, table: str, where: Filter = EVERYTHING, snapshot: int | None = None, of: Lake | None = None
    ) -> Relation:
        name = (of or self.lake).spark_name(table)
        return self.view(all_of(Relation(f"{name}{'' if snapshot is None else f' VERSION AS OF {snapshot}'}")))

    def log(self, log: Log, where: Filter = EVERYTHING, snapshot: int | None = None) -> Relation:
        relation = _new_name()
        self._logs[relation] = (log, where, snapshot)
        self._unread[relation] = all_of(logged(self.lake, log, snapshot))
        return relation

    def relation_of(self, rows: pa.Table) -> Relation:
        return self._named(frame_of(self.spark, rows))

    def view(self, text: Query) -> Relation:
        if self._all_brought(text):
            return self._taken_over(self._here.view(text))
        return self._named(self._frame(text))

    def materialized(self, text: Query) -> Relation:
        if self._all_brought(text):
            return self._taken_over(self._here.materialized(text))
        with unconstrained(self.spark):
            return self._once(self._frame(text).localCheckpoint(eager=False))

    def counted(self, text: Query, counts: Mapping[str, Condition]) -> Counted:
        if self._all_brought(text):
            return self._here.tallied(self.view(text), counts)
        if self.small and (small := self._bring(self._frame(text))) is not None:
            return self._here.tallied(small, counts)
        items = [F.count_if(F.expr(condition)).alias(name) for name, condition in counts.items()]
        every = F.count(F.lit(1)).alias(_ALL)
        counted = ObservedCounts(self._frame(text), *items, every)
        with unconstrained(self.spark):
            relation = self._once(counted.rows.localCheckpoint())
        found = counted.read()
        if found.pop(_ALL) > SMALL:
            return Counted(relation, found)
        small = self._bring(self.spark.table(relation))
        if small is None:
            return Counted(relation, found)
        self.free(relation)
        return self._here.tallied(small, counts)

    def brought(self, text: Query, types: Mapping[str, str], together: Together | None = None) -> Relation:
        if together is not None and (parts := self._by_workers(text, types)) is not None:
            text = together(parts)
        small = None if self._all_brought(text) or not self.small else self._bring(self._frame(text))
        return self.view(text) if small is None else small

    def _by_workers(self, text: Query, types: Mapping[str, str]) -> Relation | None:
        """Have the executors' Python answer a text that reads one log; None where Spark has to, or some fail."""
        if (found := self._log_files(text)) is None:
            return None
        log, files = found
        frame = files.answer(self.spark, text, log, to_arrow_schema(_schema(types)))
        if frame is None:
            return None

        def answered() -> Relation:
            small = self._bring(frame) if self.small else None
            return self._once(frame.localCheckpoint()) if small is None else small

        return tried(answered)

    def _log_files(self, text: Query) -> tuple[Relation, LogFiles] | None:
        """Find the one log that a text reads, and its files; None where it reads more, or Spark has to read them."""
        logs = [relation for relation in self._logs if relation in text]
        others = any(view in text for view in (*self._views, *self._brought) if view not in logs)
        if others or len(logs) != 1:
            return None
        files = LogFiles.scanned(self.lake, *self._logs[logs[0]])
        return None if files is None else (logs[0], files)

    def _taken_over(self, relation: Relation) -> Relation:
        """Note that this process has a relation."""
        self._brought.add(relation)
        return relation

    def _bring(self, frame: DataFrame) -> Relation | None:
        """Compute a frame, and take its rows over into this process; None where they are too many for it."""
        rows = arrow_of(frame)
        if rows is None:
            self.small = False
            return None
        return self._taken_over(self._here.lent(rows))

    def _all_brought(self, text: Query | Relation) -> bool:
        """Tell whether this process has what a text reads; where Spark has some of it, Spark is lent the rest."""
        if all(view in self._brought for view in (*self._views, *self._unread) if view in text):
            return any(relation in text for relation in self._brought)
        self._lend(text)
        return False

    def _lend(self, text: Query | Relation) -> None:
        """Have Spark read what a text reads of this process, under its names."""
        for name in self._brought:
            if name in text and name not in self._views:
                frame_of(self.spark, self._here.fetched(all_of(name))).createOrReplaceTempView(name)
                self._views.append(name)

    def rows(self, text: Query) -> list[dict[str, Any]]:
        if self._all_brought(text):
            return self._here.rows(text)
        return [row.asDict() for row in self._frame(text).collect()]

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        if self._all_brought(text):
            return self._here.readable_rows(text)
        return readable_rows(self._frame(text))

    def count(self, relation: Relation) -> int:
        (row,) = self.rows(Query(f"SELECT COUNT(*) AS n FROM {relation}"))
        return int(row["n"])

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        if not pipeline.each:
            return source
        if self._all_brought(source):
            return self._taken_over(self._here.prepared(source, pipeline))
        if all(map(is_common, pipeline.each)):
            # No view, so that the executors' Python can take the steps as well.
            text = stepped(pipeline, source, self._frame(all_of(source)).columns)
            assert text is not None, "common steps have a text"
            return text
        return self._named(prepare(self._frame(all_of(source)), pipeline))

    def mapped(self, text: Query, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> Relation:
        if self._all_brought(text):
            return self._taken_over(self._here.mapped(text, function, types))
        schema = _schema(types)
        return self._named(self._frame(text).mapInArrow(over_batches(function(to_arrow_schema(schema))), schema))

    def by_key(
        self, text: Query, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> Relation:
        if self._all_brought(text):
            return self._taken_over(self._here.by_key(text, key, function, types))
        schema = _schema(types)
        grouped = self._frame(f"SELECT *, {bucketed(key)} AS {BUCKET} FROM ({text})").groupBy(BUCKET)
        call = function(to_arrow_schema(schema))
        return self._named(grouped.applyInArrow(lambda rows: over_group(call, rows), schema))

    def side(self, pipeline: Pipeline) -> SparkSide:
        return SparkSide(self.spark, self.lake, pipeline, self.choice, streams=False)

    def bundles(self, text: Query, epochs: Iterable[int]) -> Iterator[DataFrame]:
        return (self._frame(f"SELECT * FROM ({text}) WHERE _epoch = {epoch}L") for epoch in epochs)

    def gathered(self, pipeline: Pipeline) -> Gathered:
        made = Gathered(self.lake, pipeline)
        self._gathered.append(made)
        return made

    def write(self, text: Query, branch: Branch, properties: Mapping[str, str], of: Lake | None = None) -> None:
        if self._all_brought(text):
            with suppress(duckdb.OutOfMemoryException):
                self._here.write(text, branch, properties, of)
                return
            self._lend(text)
        append(self._frame(text), branch, properties)

    def files(self, text: Query, table: str) -> Sequence[DataFile] | None:
        if (found := self._log_files(text)) is None:
            return None
        log, read = found
        return read.write(self.spark, text, log, self.lake.table(table), ROWS_A_FILE)

    def follower(self, pipeline: Pipeline, owner: str) -> Follower:
        return Follower(self.lake, pipeline, owner, self._here.connection)

    def free(self, relation: Relation) -> None:
        if relation in self._brought:
            self._brought.remove(relation)
            self._here.free(relation)
            if relation in self._views:
                self._views.remove(relation)
                self.spark.catalog.dropTempView(relation)
            return
        frame = self._checkpointed.pop(relation)
        self.spark.catalog.dropTempView(relation)
        free(frame)

    def close(self) -> None:
        for relation in list(self._checkpointed):
            self.free(relation)
        while self._gathered:
            self._gathered.pop().close()
        # Views are dropped, as a stream opens a session with each epoch that claims.
        while self._views:
            self.spark.catalog.dropTempView(self._views.pop())
        self._here.close()

    def _frame(self, text: str) -> DataFrame:
        """Have Spark take a text; a log gets its view with the first that reads it, as executors' Python needs none."""
        for log in [log for log in self._unread if log in text]:
            self.spark.sql(self._unread.pop(log)).createOrReplaceTempView(log)
            self._views.append(log)
        return self.spark.sql(text)

    def _named(self, frame: DataFrame) -> Relation:
        name = _new_name()
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def _once(self, frame: DataFrame) -> Relation:
        # Not a view of the frame itself, as dropping a view uncaches the frame that it is of.
        name = self._named(frame.where("true"))
        self._checkpointed[name] = frame
        return name


def _new_name() -> Relation:
    return Relation(f"tailrace_{uuid.uuid4().hex[:12]}")


def _schema(types: Mapping[str, str]) -> StructType:
    schema = StructType.fromDDL(", ".join(f"{quoted(name)} {_ddl(type)}" for name, type in types.items()))
    assert isinstance(schema, StructType)
    return schema


def _ddl(type: str) -> str:
    """Write a type as Spark reads it, with the names of fields quoted.

    >>> _ddl("array<struct<at:timestamp,n:decimal(8,2)>>")
    'array<struct<`at`:timestamp,`n`:decimal(8,2)>>'
    """
    if element := element_type(type):
        return f"array<{_ddl(element)}>"
    fields = struct_fields(type)
    if fields is None:
        return type
    return f"struct<{','.join(f'{quoted(name)}:{_ddl(own)}' for name, own in fields.items())}>"
