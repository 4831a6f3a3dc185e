"""Read messages in Confluent's wire format from a micro-batch of a topic, in this process or with Spark.

Only this process sends requests to the schema registry, so the workers of a cluster need neither access to the registry
nor its credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.engines.spark.executions.preparation import empty_frame
from tailrace.engines.spark.workers.python_tasks import over_batches
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.framed.framed_records import (
    HEAD,
    Schemas,
    framed_records,
    readable_schema,
    record_fields,
    schema_ids,
)
from tailrace.ingest.framed.schema_registry import KEPT, SchemaRegistry
from tailrace.ingest.line_reader import LINES
from tailrace.ingest.parsing import own_batch, raw_messages
from tailrace.ingest.plain_columns import schema_of
from tailrace.model.logs.log import Log


class FramedMessages:
    """A reader for a topic with messages in Avro or Protobuf, or for a topic with the changes of a database table."""

    def __init__(self, log: Log, registry: SchemaRegistry | None) -> None:
        self.log, self.registry = log, registry
        self._compiled = lru_cache(maxsize=KEPT)(readable_schema)
        self._looked_at, self._fields = set[int](), list[Sequence[str]]()

    def new_fields(self) -> list[Sequence[str]]:
        """Return the field names of the schemas that have first occurred since the last call of this method."""
        found, self._fields = self._fields, []
        return found

    def rows(self, spark: SparkSession, batch: DataFrame, blank: BlankLines) -> pa.Table:
        """Read the records of a micro-batch into this process, with the same columns as `read_messages` returns.

        In a log of changes, a message without a value is a tombstone, which only causes a compacted topic to delete
        earlier messages. A tombstone is not a record, but it is counted in `blank`. Raises `RegistryError` if the
        registry does not return the schemas.
        """
        lines = raw_messages(spark, batch)
        if self.log.signed:
            there = lines.filter(pc.is_valid(lines["_bytes"]))
            blank.here, lines = blank.here + len(lines) - len(there), there
        if self.registry is None:
            return framed_records(self.log, {}, lines)
        ids = {id for chunk in lines["_bytes"].chunks for id in pc.unique(schema_ids(chunk).drop_null()).to_pylist()}
        return framed_records(self.log, self._schemas(sorted(ids)), lines)

    def frame(self, spark: SparkSession, batch: DataFrame, blank: BlankLines) -> DataFrame:
        """Read the records of a micro-batch with Spark. The columns and the possible errors are the same as for
        `rows`.
        """
        messages = own_batch(spark, batch)
        lines = messages.selectExpr("value AS _bytes", *LINES.names[1:])
        if self.log.signed:
            lines = blank.without(lines, "_bytes IS NULL")
        return lines.mapInArrow(over_batches(messages_reader(self.log, self._found(messages))), self._schema)

    def nothing(self, spark: SparkSession) -> DataFrame:
        """Return a frame without records, with the columns that the frames of the method `frame` have."""
        return empty_frame(spark, self._schema)

    @property
    def _schema(self) -> StructType:
        return from_arrow_schema(schema_of(self.log))

    def _found(self, messages: DataFrame) -> Schemas:
        """Return the schemas of all messages in a frame, as a mapping from schema id to schema."""
        if self.registry is None:
            return {}
        framed = f"OCTET_LENGTH(value) >= {HEAD} AND SUBSTRING(value, 1, 1) = X'00'"
        heads = messages.where(framed).selectExpr(f"SUBSTRING(value, 1, {HEAD}) AS head").distinct().toArrow()
        ids = [id for chunk in heads["head"].cast(pa.binary()).chunks for id in schema_ids(chunk).to_pylist()]
        return self._schemas(sorted(ids))

    def _schemas(self, ids: list[int]) -> Schemas:
        assert self.registry is not None
        found = {id: self._compiled(one, self.log.messages) for id, one in self.registry.schemas(ids).items()}
        for id in found.keys() - self._looked_at:
            self._fields += record_fields(self.log, found[id])
        self._looked_at |= found.keys()
        return found


def messages_reader(log: Log, schemas: Schemas) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark's workers apply to the record batches of a partition."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = pa.Table.from_batches([batch]).cast(LINES)
            yield from framed_records(log, schemas, lines).combine_chunks().to_batches()

    return read
