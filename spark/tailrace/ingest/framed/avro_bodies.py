"""Read the bodies of Avro messages that have the same schema, in a single call of fastavro.

The bodies are joined into one Avro array, with a random mark after each body, and fastavro reads the array. So this
module executes no Python code for the individual records. If every record in the result is followed by the mark, each
body was read exactly to its end. If a mark is missing, or if fastavro raises an error, the batch of bodies is bisected
until the faulty body is found.

fastavro returns values in the form in which Avro stores them: instants and dates as numbers, decimals as bytes. Arrow
then converts the values to the types of the columns.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.ingest.framed import column_values as kinds
from tailrace.ingest.framed.column_values import BulkReader, Kind, Misfits
from tailrace.ingest.framed.schema_columns import SchemaColumns, UnreadableSchemaError
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.model.logs.log import Log

_MARK = os.urandom(16)
"""The mark after each body. The mark is random, so that nobody can put it into a message on purpose."""


class AvroSchema:
    """An Avro schema for records, and the reader for these records.

    `fields` maps the names of the fields to their types.
    """

    def __init__(self, schema: RegisteredSchema) -> None:
        """Parse the schema. Raises `UnreadableSchemaError` if no record with this schema can be read."""
        names = dict[str, Any]()
        stored = dict[str, Any]()
        try:
            parsed: Any = None
            for text in (*(text for _, text in schema.references), schema.text):
                whole = json.loads(text)
                parsed = fastavro.parse_schema(whole, named_schemas=names)
                record = fastavro.parse_schema(_stored(whole), named_schemas=stored)
            kind = _resolved(parsed, names)
            if not isinstance(kind, dict) or kind.get("type") not in ("record", "error"):
                raise UnreadableSchemaError("the schema is no record's")
            _refuse_endless(kind, names, (), set())
            self._names = names
            self.fields: dict[str, Any] = {field["name"]: field["type"] for field in kind["fields"]}
            self._record = record
            mark = {"type": "fixed", "name": "tailrace_mark", "size": len(_MARK)}
            framed = {"type": "record", "name": "tailrace_framed", "fields": [
                {"name": "body", "type": kind["name"]}, {"name": "mark", "type": mark}]}  # fmt: skip
            # The array is a field of a record, because fastavro resolves named types only within the schemas of
            # records.
            items = {"name": "all", "type": {"type": "array", "items": framed}}
            batch = {"type": "record", "name": "tailrace_batch", "fields": [items]}
            self._batch = fastavro.parse_schema(batch, named_schemas=stored)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, fastavro.schema.SchemaParseException,
                fastavro.schema.UnknownType) as error:  # fmt: skip
            raise UnreadableSchemaError(f"the schema cannot be parsed: {type(error).__name__} {error}") from None

    def kinds(self) -> dict[str, Kind | str]:
        """Return the kind of each field: the field's type, together with how the field's values are to be interpreted.

        If no column can hold a field's values, the dict has a description of the field for users instead of the kind.
        """
        return {name: _kind(_resolved(type, self._names), self._names) for name, type in self.fields.items()}

    def inner(self, name: str) -> dict[str, Kind | str]:
        """Return the kinds of the fields inside a field whose type is a record.

        The type of the field must be a record, or a union of a record and null.
        """
        found = _resolved(self.fields.get(name), self._names)
        some = [_resolved(one, self._names) for one in found] if isinstance(found, list) else [found]
        records = [one for one in some if isinstance(one, dict) and one.get("type") == "record"]
        if len(records) != 1:
            raise UnreadableSchemaError(f"the schema has no record {name!r}")
        return {f["name"]: _kind(_resolved(f["type"], self._names), self._names) for f in records[0]["fields"]}

    def read(self, bodies: pa.Array, raw: pa.StructType) -> tuple[pa.StructArray, Misfits]:
        """Read the fields that `raw` lists from message bodies; the values have the form in which Avro stores them.

        A body that is not a valid record is a misfit: the result contains null for the body, and the reason is
        returned.
        """
        reader = BulkReader(
            partial(self._together, raw=raw), _NO_RECORD, pa.nulls(1, raw),
            lambda body, error: f"the bytes are no record of the schema: {self._reason(body, raw)}",
        )  # fmt: skip
        with no_search_for_cycles():
            parts, misfits = reader.read_in_batches(bodies)
        return pa.concat_arrays([pa.array([], raw), *parts]), misfits

    def _together(self, bodies: pa.Array, raw: pa.StructType) -> pa.Array:
        """Read all bodies in one call of fastavro. Raises one of the errors in `_NO_RECORD` if a body is not a valid
        record.
        """
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(bodies)], pa.int64()), bodies.cast(pa.large_binary()))
        joined = pc.binary_join(whole, pa.scalar(_MARK, pa.large_binary()))[0].as_buffer().to_pybytes()
        array = io.BytesIO(b"".join((_number(len(bodies)), joined, _MARK, b"\0")))
        rows: Any = fastavro.schemaless_reader(array, self._batch, None)
        read = pa.array(rows["all"], pa.struct([("body", raw), ("mark", pa.binary())]))
        if not pc.all(pc.equal(read.field("mark"), pa.scalar(_MARK, pa.binary())), min_count=0).as_py():
            raise ValueError("a record ends elsewhere than its body")
        return read.field("body")

    def _reason(self, body: bytes, raw: pa.StructType) -> str:
        """Return the reason why a body is not a valid record."""
        stream = io.BytesIO(body)
        try:
            row: Any = fastavro.schemaless_reader(stream, self._record, None)
            if left := len(body) - stream.tell():
                return f"a record has {left} bytes less"
            pa.array([row], raw)
        except EOFError:
            return "they end before it does"
        except _NO_RECORD as error:
            return str(error) or type(error).__name__
        raise AssertionError("a body that can be read alone can be read with others")


class AvroBodies:
    """A reader that converts the bodies of messages with one schema to a log's columns."""

    def __init__(self, log: Log, schema: RegisteredSchema) -> None:
        """Match the schema's fields with the log's columns.

        Raises `UnreadableSchemaError` if no record with this schema can be read.
        """
        self._schema = AvroSchema(schema)
        self._columns = SchemaColumns.of(log, self._schema.kinds())
        self._raw = pa.struct(list(self._columns.raw.items()))

    def read(self, bodies: pa.Array) -> tuple[dict[str, pa.Array], Misfits]:
        """Convert the bodies of messages to the log's columns.

        If a body is not a valid record, the columns are null for this body, and the reason is returned.
        """
        values, misfits = self._schema.read(bodies, self._raw)
        flat = dict(zip((field.name for field in self._raw), values.flatten(), strict=True))
        made, unlike = self._columns.columns(flat, len(bodies))
        return made, {**unlike, **misfits}


_NO_RECORD = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, pa.ArrowException)
"""The errors that fastavro and Arrow raise for bytes that are not a valid record of the schema."""


def _number(number: int) -> bytes:
    """Encode a number as an Avro long."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, {"type": "long"}, number)
    return stream.getvalue()


def _stored(schema: Any) -> Any:
    """Return a copy of a schema without logical types, so that values are read in the form in which Avro stores
    them.
    """
    if isinstance(schema, dict):
        return {
            name: _stored(value) if name in ("type", "items", "values", "fields") else value
            for name, value in schema.items()
            if name != "logicalType"
        }
    return [_stored(one) for one in schema] if isinstance(schema, list) else schema


def _resolved(schema: Any, names: Mapping[str, Any]) -> Any:
    """Return the schema to which a name refers. Any other schema is returned unchanged."""
    while True:
        if isinstance(schema, str) and schema in names:
            schema = names[schema]
        elif isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            schema = schema["type"]
        else:
            return schema


def _parts(schema: Any) -> Iterator[Any]:
    """Yield the schemas that a schema contains: the schemas of its fields, array items, map values and union
    members.
    """
    if isinstance(schema, list):
        yield from schema
    elif isinstance(schema, dict):
        yield from (field["type"] for field in schema.get("fields", ()))
        yield from (schema[name] for name in ("items", "values") if name in schema)


def _refuse_endless(schema: Any, names: Mapping[str, Any], inside: tuple[str, ...], done: set[str]) -> None:
    """Refuse a schema if a few bytes could encode an endlessly large record.

    If a schema contains itself, a message could make fastavro recurse until the stack of the process overflows. If the
    items of an array are encoded in zero bytes, a short message could encode a huge number of items.
    """
    schema = _resolved(schema, names)
    if isinstance(schema, dict) and schema.get("type") in ("record", "error"):
        if schema["name"] in inside:
            raise UnreadableSchemaError(f"the schema's {schema['name']} contains itself")
        if schema["name"] in done:
            return
        done.add(schema["name"])
        inside = (*inside, schema["name"])
    if isinstance(schema, dict) and schema.get("type") == "array" and _empty(schema["items"], names):
        raise UnreadableSchemaError("the schema has an array of items that have no bytes")
    for part in _parts(schema):
        _refuse_endless(part, names, inside, done)


def _empty(schema: Any, names: Mapping[str, Any]) -> bool:
    """Return True if values of the schema are encoded in zero bytes."""
    schema = _resolved(schema, names)
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        # The comparison prevents endless recursion; `_refuse_endless` refuses a schema that contains itself.
        return all(_resolved(part, names) != schema and _empty(part, names) for part in _parts(schema))
    return kind == "null" or (kind == "fixed" and schema["size"] == 0)


def _kind(schema: Any, names: Mapping[str, Any]) -> Kind | str:
    """Return the kind of a field with this schema.

    If no column can hold the field's values, the result is instead a description of the field for users.
    """
    if isinstance(schema, list):
        some = [one for one in (_resolved(one, names) for one in schema) if one not in ("null", {"type": "null"})]
        if len(some) > 1:
            return "a union of several types"
        return _kind(some[0], names) if some else kinds.NULL
    type = schema.get("type") if isinstance(schema, dict) else schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if isinstance(schema, dict) and (told := _OF_DEBEZIUM.get(schema.get("connect.name"))) is not None:
        return told
    if logical == "decimal" and type in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= 38 and precision:
            return kinds.decimal_kind(precision, scale)
        return f"decimal({precision},{scale})"
    if logical == "uuid" and type == "fixed":
        return kinds.UUID if schema["size"] == 16 else f"fixed({schema['size']})"
    if logical in _LOGICAL:
        stored, found = _LOGICAL[logical]
        # Ignore a logical type whose stored type is not the expected type, as Avro's specification requires.
        return found if type == stored else _STORED.get(str(type), str(type))
    return _STORED.get(str(type), str(type))


_OF_DEBEZIUM: dict[Any, Kind] = {
    "io.debezium.time.Timestamp": kinds.MILLIS,
    "io.debezium.time.MicroTimestamp": kinds.MICROS,
    "io.debezium.time.NanoTimestamp": kinds.NANOS,
    "io.debezium.time.ZonedTimestamp": kinds.INSTANT_TEXT,
    "io.debezium.time.IsoTimestamp": kinds.INSTANT_TEXT,
    "io.debezium.time.Date": kinds.DATE,
    "io.debezium.time.IsoDate": kinds.DATE_TEXT,
    "io.debezium.time.Time": kinds.TIME_MILLIS,
    "io.debezium.time.MicroTime": kinds.TIME_MICROS,
}
"""The kind for each semantic type that Debezium names in a schema. Instants without a time zone are taken as UTC."""

_STORED = {
    "null": kinds.NULL, "boolean": kinds.BOOLEAN, "int": kinds.INT, "long": kinds.LONG, "float": kinds.FLOAT,
    "double": kinds.DOUBLE, "string": kinds.STRING, "enum": kinds.STRING, "bytes": kinds.BYTES,
}  # fmt: skip
_LOGICAL: dict[Any, tuple[str, Kind | str]] = {
    "date": ("int", kinds.DATE),
    "time-millis": ("int", kinds.TIME_MILLIS),
    "time-micros": ("long", kinds.TIME_MICROS),
    "timestamp-millis": ("long", kinds.MILLIS),
    "timestamp-micros": ("long", kinds.MICROS),
    "timestamp-nanos": ("long", kinds.NANOS),
    **{f"local-timestamp-{unit}": ("long", f"local-timestamp-{unit}") for unit in ("millis", "micros", "nanos")},
}
