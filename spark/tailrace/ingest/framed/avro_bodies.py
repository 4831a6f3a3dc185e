"""Read the bodies of Avro messages that have the same registered schema."""

from __future__ import annotations

import pyarrow as pa

from tailrace.ingest.avro_schema import AvroSchema
from tailrace.ingest.column_values import Misfits
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.schema_columns import SchemaColumns
from tailrace.model.logs.log import Log


def avro_schema(schema: RegisteredSchema) -> AvroSchema:
    """Parse a registered schema. Raises `UnreadableSchemaError` if no record with this schema can be read."""
    return AvroSchema(schema.text, [text for _, text in schema.references])


class AvroBodies:
    """A reader that converts the bodies of messages with one schema to a log's columns."""

    def __init__(self, log: Log, schema: RegisteredSchema) -> None:
        """Match the schema's fields with the log's columns.

        Raises `UnreadableSchemaError` if no record with this schema can be read.
        """
        self._schema = avro_schema(schema)
        self._columns = SchemaColumns.of(log, self._schema.kind)

    def read(self, bodies: pa.Array) -> tuple[dict[str, pa.Array], Misfits]:
        """Convert the bodies of messages to the log's columns.

        If a body is not a valid record, the columns are null for this body, and the reason is returned.
        """
        records, misfits = self._schema.read(bodies, self._columns.raw)
        made, unlike = self._columns.read(records)
        return made, {**unlike, **misfits}
