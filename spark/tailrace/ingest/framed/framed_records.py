"""Convert messages in Confluent's wire format to a log's records: a zero byte, the schema's id, and the encoded record.

The code in this module reads Arrow tables, and needs neither Spark nor the schema registry. If DuckDB processes the
records, the code runs in this process; if Spark processes the records, the code runs in Spark's Python workers.

If the schema of a message is unknown, or if the message does not match its schema, the message is rejected, and its
bytes and the reason are stored. An unreadable line of JSON is handled in the same way (`ingest.parsing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_values import Misfits, without_head
from tailrace.ingest.framed.avro_bodies import AvroBodies, avro_schema
from tailrace.ingest.framed.change_records import SIDES, AvroChanges, ChangedRows, JsonChanges
from tailrace.ingest.framed.protobuf_bodies import ProtobufBodies, compile_schema, message_fields
from tailrace.ingest.framed.schema_registry import KEPT, RegisteredSchema
from tailrace.ingest.judged_records import judged_records
from tailrace.ingest.plain_columns import schema_of
from tailrace.ingest.schema_columns import UnreadableSchemaError, nulls_of
from tailrace.model.logs.log import Log, too_large

HEAD = 5
"""The number of bytes before the body of a message: a zero byte, and four bytes for the schema's id (big-endian)."""


@dataclass(frozen=True)
class ReadableSchema:
    """A schema in the form that is sent to workers: for Avro, the registry's text; for Protobuf, a compiled schema.

    `unreadable` is the reason why records with this schema cannot be read; it is an empty string if the records can be
    read.
    """

    registered: RegisteredSchema
    descriptors: bytes = b""
    unreadable: str = ""


Schemas: TypeAlias = Mapping[int, ReadableSchema]
"""The schemas of a micro-batch's messages, by schema id. Ids that the schema registry does not know are missing."""


def record_fields(log: Log, schema: ReadableSchema) -> list[Sequence[str]]:
    """Return the field names of each record type in a schema; the list is empty if records with this schema cannot be
    read.
    """
    if schema.unreadable:
        return []
    if schema.descriptors:
        # Leave out message types that share no field name with the log's columns: the log's messages do not have these
        # types.
        return [names for names in message_fields(schema.descriptors) if set(names) & set(log.columns)]
    with suppress(UnreadableSchemaError):
        avro = avro_schema(schema.registered)
        return [list((avro.inner(SIDES[1]) if log.signed else avro.kind).fields)]
    return []


def readable_schema(schema: RegisteredSchema, messages: str) -> ReadableSchema:
    """Return a registered schema in the form in which messages of a kind, `avro` or `protobuf`, are read with it."""
    made = ReadableSchema(schema)
    if schema.kind != messages.upper():
        return replace(made, unreadable=f"it is of kind {schema.kind}, and the log's messages are {messages}")
    try:
        return replace(made, descriptors=compile_schema(schema)) if messages == "protobuf" else made
    except UnreadableSchemaError as error:
        return replace(made, unreadable=str(error))


def framed_records(log: Log, schemas: Schemas, lines: pa.Table) -> pa.Table:
    """Convert messages to records with the log's columns. The table of messages has the columns `line_reader.LINES`.

    For a rejected message, the result has a row with the message's bytes and the error.
    """
    # Read each chunk separately. There may be more than one chunk, because the offsets in an Arrow chunk have 32 bits.
    chunks = [pa.Table.from_batches([one]) for one in lines.combine_chunks().to_batches()]
    return pa.concat_tables([schema_of(log).empty_table(), *(_of_chunk(log, schemas, one) for one in chunks)])


def _of_chunk(log: Log, schemas: Schemas, lines: pa.Table) -> pa.Table:
    large = pc.fill_null(pc.greater(pc.binary_length(lines["_bytes"]), log.record_bytes), False)
    if not pc.any(large, min_count=0).as_py():
        return _read(log, schemas, lines)
    beyond = _rejected(log, lines.filter(large), too_large(log))
    return pa.concat_tables([_read(log, schemas, lines.filter(pc.invert(large))), beyond])


def _read(log: Log, schemas: Schemas, lines: pa.Table) -> pa.Table:
    if log.messages == "json":
        return _changed(log, JsonChanges(log).read(_one_chunk(lines["_bytes"])), lines)
    ids = schema_ids(_one_chunk(lines["_bytes"]))
    tables = [_rejected(log, lines.filter(pc.is_null(ids)), _NO_ID)]
    for id in pc.unique(ids.drop_null()).to_pylist():
        tables.append(_of_schema(log, id, schemas.get(id), lines.filter(pc.equal(ids, id))))
    return pa.concat_tables(tables)


def schema_ids(values: pa.Array) -> pa.Array:
    """Return the schema id of each message. The id is null if the message does not begin as the wire format
    requires.
    """
    head = pc.binary_slice(values, 0, HEAD)
    framed = pc.fill_null(pc.and_(pc.equal(pc.binary_length(head), HEAD), pc.starts_with(head, b"\0")), False)
    heads = pc.if_else(framed, head, pa.scalar(bytes(HEAD), pa.binary()))
    data = np.frombuffer(heads.buffers()[2] or b"", np.uint8, HEAD * len(heads)).reshape(-1, HEAD)
    numbers = np.ascontiguousarray(data[:, 1:]).view(">u4").ravel().astype(np.int64)
    return pa.array(numbers, mask=~framed.to_numpy(zero_copy_only=False))


def _of_schema(log: Log, id: int, schema: ReadableSchema | None, lines: pa.Table) -> pa.Table:
    """Read messages that all have the same schema."""
    reader = "the registry does not know it" if schema is None else bodies_reader(log, schema)
    if isinstance(reader, str):
        return _rejected(log, lines, f"schema {id}: {reader}")

    def named(misfits: Misfits) -> Misfits:
        return {place: f"schema {id}: {reason}" for place, reason in misfits.items()}

    bodies = without_head(_one_chunk(lines["_bytes"]), HEAD)
    if isinstance(reader, AvroChanges):
        read = reader.read(bodies)
        return _changed(log, replace(read, misfits=named(read.misfits)), lines)
    columns, misfits = reader.read(bodies)
    return _judged(log, columns, lines, named(misfits))


def _changed(log: Log, changed: ChangedRows, lines: pa.Table) -> pa.Table:
    """Build the output rows for change records: retracted rows, added rows, and rows for rejected messages."""
    misfits, sides = dict(changed.misfits), list[tuple[pa.Table, pa.Array]]()
    for side, sign in zip(SIDES, (-1, 1), strict=True):
        there = changed.there[side].copy()
        there[list(changed.misfits)] = False
        mask, places = pa.array(there), np.flatnonzero(there)
        columns = {name: column.filter(mask) for name, column in changed.columns[side].items()}
        table = _judged(log, columns, lines.filter(mask), {}, sign)
        for number in np.flatnonzero(table["_error"].is_valid().to_numpy()):
            misfits.setdefault(int(places[number]), f"{side}: {table['_error'][int(number)].as_py()}")
        sides.append((table, pa.array(places, pa.int64())))
    wrong = pa.array(sorted(misfits), pa.int64())
    rejected = _judged(
        log, nulls_of(log, len(wrong)), lines.take(wrong), {n: misfits[place.as_py()] for n, place in enumerate(wrong)}
    )
    # If one row of a message does not fit the log, the message is rejected as a whole. So the other row of the message
    # is removed.
    rows = [table.filter(pc.invert(pc.is_in(places, wrong))) for table, places in sides]
    return pa.concat_tables([*rows, rejected])


def _rejected(log: Log, lines: pa.Table, reason: str) -> pa.Table:
    """Reject all of these messages for the same reason, without reading them; return one row for each message."""
    columns, misfits = nulls_of(log, len(lines)), Misfits()
    for place, value in enumerate(lines["_bytes"].to_pylist()):
        misfits[place] = "there is no value" if value is None else reason
    return _judged(log, columns, lines, misfits)


def _judged(
    log: Log, columns: Mapping[str, pa.Array], lines: pa.Table, misfits: Misfits, sign: int | None = None
) -> pa.Table:
    """Build the output rows for records. If a record does not fit the log, the row contains the record's bytes and the
    error.
    """
    return judged_records(log, columns, lines, misfits, lines["_bytes"].take, sign)


def bodies_reader(log: Log, schema: ReadableSchema) -> AvroBodies | AvroChanges | ProtobufBodies | str:
    """Return the reader for the bodies of messages with a schema, or the reason why they cannot be read."""
    return _reader(_Hashed(log), schema)


@dataclass(frozen=True)
class _Hashed:
    """A wrapper that makes a log hashable, so that the log can be part of a cache key."""

    log: Log

    def __hash__(self) -> int:
        return hash((self.log.name, tuple(self.log.columns.items())))


@lru_cache(maxsize=KEPT)
def _reader(hashed: _Hashed, schema: ReadableSchema) -> AvroBodies | AvroChanges | ProtobufBodies | str:
    """Return the reader for records with this schema, or the reason why they cannot be read."""
    if schema.unreadable:
        return schema.unreadable
    try:
        if schema.descriptors:
            return ProtobufBodies(hashed.log, schema.descriptors)
        if hashed.log.signed:
            return AvroChanges(hashed.log, schema.registered)
        return AvroBodies(hashed.log, schema.registered)
    except UnreadableSchemaError as error:
        return str(error)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


_NO_ID = "the bytes do not begin with a zero and the id of a schema, as Confluent's serializers write them"
