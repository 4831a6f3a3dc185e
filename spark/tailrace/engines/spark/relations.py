"""Manage a run's relations on Spark. A relation is either a view or a set of rows that is computed only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.engines.duckdb.database.preview import readable_rows
from tailrace.engines.python.record_calls import OverBatches
from tailrace.engines.session_protocol import OverTables
from tailrace.engines.spark.executions.buckets import BUCKET, bucket_term
from tailrace.engines.spark.executions.open_windows import free, without_constraints
from tailrace.engines.spark.executions.preparation import prepare, schema_of
from tailrace.engines.spark.rows.declared_rows import log_relation
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.python_tasks import over_batches, over_group
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import current_columns
from tailrace.model.definition.definition import Ranged
from tailrace.model.logs.log import Log
from tailrace.sql.records.selections import is_common, leaves_out, query_steps
from tailrace.sql.terms import Query, Relation, all_of, new_relation


class SparkRelations:
    """The relations that a run has on Spark, and the session's operations on these relations (`session_protocol`)."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark, self.lake = spark, lake
        self._views: set[Relation] = set()
        self._unread: dict[Relation, Query] = {}
        self._checkpointed: dict[Relation, DataFrame] = {}

    def has(self, relation: Relation) -> bool:
        """Return True if Spark has a relation of this name."""
        return relation in self._views or relation in self._unread

    def read_by(self, text: Query | Relation) -> frozenset[Relation]:
        """Return the set of the relations on Spark that a query reads."""
        return text.reads & (self._views | self._unread.keys())

    def frame(self, text: Query) -> DataFrame:
        """Return the data frame of a query. The view of a table or log is created when a query first reads it."""
        for name in text.reads & self._unread.keys():
            self._view(name, self.spark.sql(self._unread.pop(name)))
        return self.spark.sql(text)

    def table(self, table: str, snapshot: int | None, of: Lake) -> Relation:
        """Return a relation of the rows of a lake's table.

        If `snapshot` is None, the table's current snapshot is read.
        """
        if snapshot is None:
            return self._once_read(Relation(of.spark_name(table)))
        rows = f"{of.spark_name(table)} VERSION AS OF {snapshot}"
        items = current_columns(of.table(table), snapshot)
        return self._once_read(Relation(rows if items is None else f"(SELECT {', '.join(items)} FROM {rows})"))

    def log(self, log: Log, snapshot: int | None) -> Relation:
        """Return a relation of a landed log's rows.

        If `snapshot` is None, the log's current snapshot is read.
        """
        return self._once_read(log_relation(self.lake, log, snapshot))

    def relation_of(self, rows: pa.Table) -> Relation:
        """Register an Arrow table with Spark under a new name, and return this name."""
        return self.lent(new_relation(), rows)

    def lent(self, relation: Relation, rows: pa.Table) -> Relation:
        """Register an Arrow table with Spark under the name `relation`."""
        return self._view(relation, frame_of(self.spark, rows))

    def view(self, text: Query) -> Relation:
        return self._view(new_relation(), self.frame(text))

    def materialized(self, text: Query) -> Relation:
        with without_constraints(self.spark):
            return self.once(self.frame(text).localCheckpoint(eager=False))

    def once(self, frame: DataFrame) -> Relation:
        """Register a checkpointed data frame as a relation. The checkpoint is freed when the relation is dropped."""
        # The view is of a filtered frame, because dropping a view of `frame` itself would remove `frame` from the
        # cache.
        name = self._view(new_relation(), frame.where("true"))
        self._checkpointed[name] = frame
        return name

    def rows(self, text: Query) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.frame(text).collect()]

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        return readable_rows(self.frame(text).toArrow())

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        if all(map(is_common, pipeline.each)):
            # The result is a query rather than a view, so that Python workers on the executors can also run the steps.
            # The source's columns are listed only if a step may drop records, because Spark has to look up the table to
            # list them.
            columns = self.frame(all_of(source)).columns if leaves_out(pipeline) else []
            text = query_steps(pipeline, source, columns)
            assert text is not None, "common steps have a text"
            return text
        return self._view(new_relation(), prepare(self.frame(all_of(source)), pipeline))

    def mapped(self, text: Query, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> Relation:
        schema = schema_of(types)
        rows = self.frame(text).mapInArrow(over_batches(function(to_arrow_schema(schema))), schema)
        return self._view(new_relation(), rows)

    def by_key(
        self, text: Query, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> Relation:
        schema = schema_of(types)
        grouped = self.frame(Query(f"SELECT *, {bucket_term(key)} AS {BUCKET} FROM ({text})")).groupBy(BUCKET)
        call = function(to_arrow_schema(schema))
        return self._view(new_relation(), grouped.applyInArrow(lambda rows: over_group(call, rows), schema))

    def free(self, relation: Relation) -> None:
        """Drop a relation, and free its checkpoint if it has one."""
        if self._unread.pop(relation, None) is not None:
            return
        self._views.remove(relation)
        self.spark.catalog.dropTempView(relation)
        if (frame := self._checkpointed.pop(relation, None)) is not None:
            free(frame)

    def close(self) -> None:
        """Drop all relations. A stream needs this, because it opens a session for each epoch that claims ids."""
        for relation in [*self._views, *self._unread]:
            self.free(relation)

    def _once_read(self, rows: Relation) -> Relation:
        """Return the name of a relation whose view is created when a query on Spark first reads it."""
        name = new_relation()
        self._unread[name] = all_of(rows)
        return name

    def _view(self, name: Relation, frame: DataFrame) -> Relation:
        frame.createOrReplaceTempView(name)
        self._views.add(name)
        return name
