"""Relations of texts on Spark: views, and rows that are computed once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.engines.session_protocol import OverBatches, OverTables
from tailrace.engines.spark.executions.open_windows import free, unconstrained
from tailrace.engines.spark.executions.per_key import BUCKET, bucketed
from tailrace.engines.spark.executions.preparation import prepare, schema_of
from tailrace.engines.spark.rows.declared_rows import logged
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.python_tasks import over_batches, over_group
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import current_columns
from tailrace.model.base.time import moment
from tailrace.model.definition.definition import Ranged
from tailrace.model.logs.log import Log
from tailrace.sql.records.selections import is_common, leaves_out, stepped
from tailrace.sql.terms import Query, Relation, all_of, new_relation, quoted, relations_in


class SparkRelations:
    """The relations of a run that Spark has, by name, and what is asked of texts over them (`session_protocol`)."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark, self.lake = spark, lake
        self._views: set[Relation] = set()
        self._unread: dict[Relation, Query] = {}
        self._checkpointed: dict[Relation, DataFrame] = {}

    def has(self, relation: Relation) -> bool:
        """Tell whether this is one of the relations."""
        return relation in self._views or relation in self._unread

    def read_by(self, text: Query | Relation) -> frozenset[Relation]:
        """Return the relations that a text reads."""
        return relations_in(text) & (self._views | self._unread.keys())

    def frame(self, text: Query) -> DataFrame:
        """Have Spark take a text; tables and logs get their views with the first, as who else reads them needs none."""
        for name in relations_in(text) & self._unread.keys():
            self._view(name, self.spark.sql(self._unread.pop(name)))
        return self.spark.sql(text)

    def table(self, table: str, snapshot: int | None, of: Lake) -> Relation:
        """Name a relation of a lake's table, as of a snapshot if given."""
        if snapshot is None:
            return self._once_read(Relation(of.spark_name(table)))
        rows = f"{of.spark_name(table)} VERSION AS OF {snapshot}"
        items = current_columns(of.table(table), snapshot)
        return self._once_read(Relation(rows if items is None else f"(SELECT {', '.join(items)} FROM {rows})"))

    def log(self, log: Log, snapshot: int | None) -> Relation:
        """Name a relation of a landed log's rows, as of a snapshot if given."""
        return self._once_read(logged(self.lake, log, snapshot))

    def relation_of(self, rows: pa.Table) -> Relation:
        """Name a relation of rows that are in memory."""
        return self.lent(new_relation(), rows)

    def lent(self, relation: Relation, rows: pa.Table) -> Relation:
        """Have Spark read rows that are in memory under a name."""
        return self._view(relation, frame_of(self.spark, rows))

    def view(self, text: Query) -> Relation:
        return self._view(new_relation(), self.frame(text))

    def materialized(self, text: Query) -> Relation:
        with unconstrained(self.spark):
            return self.once(self.frame(text).localCheckpoint(eager=False))

    def once(self, frame: DataFrame) -> Relation:
        """Name a relation of a checkpointed frame, which goes with it."""
        # Not a view of the frame itself, as dropping a view uncaches the frame that it is of.
        name = self._view(new_relation(), frame.where("true"))
        self._checkpointed[name] = frame
        return name

    def rows(self, text: Query) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.frame(text).collect()]

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        return readable_rows(self.frame(text))

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        if all(map(is_common, pipeline.each)):
            # No view, so that the executors' Python can take the steps as well. Only steps that may leave records out
            # list the columns: to find these Spark would have to look at the table.
            columns = self.frame(all_of(source)).columns if leaves_out(pipeline) else []
            text = stepped(pipeline, source, columns)
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
        grouped = self.frame(Query(f"SELECT *, {bucketed(key)} AS {BUCKET} FROM ({text})")).groupBy(BUCKET)
        call = function(to_arrow_schema(schema))
        return self._view(new_relation(), grouped.applyInArrow(lambda rows: over_group(call, rows), schema))

    def free(self, relation: Relation) -> None:
        """Drop a relation."""
        if self._unread.pop(relation, None) is not None:
            return
        self._views.remove(relation)
        self.spark.catalog.dropTempView(relation)
        if (frame := self._checkpointed.pop(relation, None)) is not None:
            free(frame)

    def close(self) -> None:
        """Drop all relations, as a stream opens a session with each epoch that claims."""
        for relation in [*self._views, *self._unread]:
            self.free(relation)

    def _once_read(self, rows: Relation) -> Relation:
        """Name a relation that becomes a view when a text of Spark's reads it."""
        name = new_relation()
        self._unread[name] = all_of(rows)
        return name

    def _view(self, name: Relation, frame: DataFrame) -> Relation:
        frame.createOrReplaceTempView(name)
        self._views.add(name)
        return name


def readable_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Collect the rows as dictionaries: instants of any year as UTC datetimes, structs and arrays as parsed JSON.

    Numbers with a fraction in structs and arrays are decimals. The whole frame is collected, so limit it first.
    """
    kinds = dict(frame.dtypes)
    instants = {name for name, type in kinds.items() if type == "timestamp"}
    nested = {name for name, type in kinds.items() if type.startswith(("struct", "array"))}
    items = []
    for name in map(quoted, frame.columns):
        own = name.strip("`")
        term = f"UNIX_MICROS({name})" if own in instants else f"TO_JSON({name})" if own in nested else name
        items.append(f"{term} AS {name}")

    def value(name: str, raw: Any) -> Any:
        if raw is None:
            return None
        if name in nested:
            return json.loads(raw, parse_float=Decimal)
        return moment(raw) if name in instants else raw

    rows = [row.asDict() for row in frame.selectExpr(*items).collect()]
    return [{name: value(name, one) for name, one in row.items()} for row in rows]
