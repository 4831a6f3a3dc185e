"""Read records in Avro with the schema with which they were written, many records in a single call of fastavro.

The bodies are joined into one Avro array, with a random mark after each body, and fastavro reads the array. So this
module executes no Python code for the individual records. If every record in the result is followed by the mark, each
body was read exactly to its end. If a mark is missing, or if fastavro raises an error, the batch of bodies is bisected
until the faulty body is found.

fastavro returns values in the form in which Avro stores them: instants and dates as numbers, texts and decimals as
bytes, and maps as lists of entries. Arrow then converts the values to the types of the columns.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.ingest import column_values as kinds
from tailrace.ingest.column_values import (
    AnyKind,
    BulkReader,
    Kind,
    ListKind,
    MapKind,
    Misfits,
    RecordKind,
    UnionKind,
)
from tailrace.ingest.schema_columns import LEVELS, TOO_MANY_LEVELS, UnreadableSchemaError

_MARK = os.urandom(16)
"""The mark after each body. The mark is random, so that nobody can put it into a message on purpose."""


class AvroSchema:
    """An Avro schema for records, and the reader for these records. `kind` is the kind of the records."""

    def __init__(self, text: str, references: Iterable[str] = ()) -> None:
        """Parse a schema from its text. `references` are the texts of the schemas to which it refers.

        Raises `UnreadableSchemaError` if no record with this schema can be read.
        """
        names, stored, storing = dict[str, Any](), dict[str, Any](), _Storing()
        try:
            parsed: Any = None
            for one in (*references, text):
                whole = json.loads(one)
                parsed = fastavro.parse_schema(whole, named_schemas=names)
                record = fastavro.parse_schema(storing.stored(whole), named_schemas=stored)
            top = _resolved(parsed, names)
            if not isinstance(top, dict) or top.get("type") not in ("record", "error"):
                raise UnreadableSchemaError("the schema is no record's")
            _refuse_endless(top, names, (), set(), {})
            if _levels(top, names, {}) > LEVELS:
                raise UnreadableSchemaError(TOO_MANY_LEVELS)
            kind = _Kinds(names).of(top)
            assert isinstance(kind, RecordKind)
            self.kind: RecordKind = kind
            self.stored: Any = record
            mark = {"type": "fixed", "name": "tailrace_mark", "size": len(_MARK)}
            framed = {"type": "record", "name": "tailrace_framed", "fields": [
                {"name": "body", "type": top["name"]}, {"name": "mark", "type": mark}]}  # fmt: skip
            # The array is a field of a record, because fastavro resolves named types only within the schemas of
            # records.
            items = {"name": "all", "type": {"type": "array", "items": framed}}
            batch = {"type": "record", "name": "tailrace_batch", "fields": [items]}
            self._batch = fastavro.parse_schema(batch, named_schemas=stored)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, fastavro.schema.SchemaParseException,
                fastavro.schema.UnknownType) as error:  # fmt: skip
            raise UnreadableSchemaError(f"the schema cannot be parsed: {type(error).__name__} {error}") from None

    def inner(self, name: str) -> RecordKind:
        """Return the kind of the records inside a field, which must be a record, or a union of a record and null."""
        found = self.kind.fields.get(name)
        if not isinstance(found, RecordKind):
            raise UnreadableSchemaError(f"the schema has no record {name!r}")
        return found

    def read(self, bodies: pa.Array, raw: pa.StructType) -> tuple[pa.StructArray, Misfits]:
        """Read the fields that `raw` lists from message bodies; the values have the form in which Avro stores them.

        A body that is not a valid record is a misfit: the result contains null for the body, and the reason is
        returned.
        """
        reader = BulkReader(
            partial(self._together, raw=raw), NO_RECORD, pa.nulls(1, raw),
            lambda body, error: f"the bytes are no record of the schema: {self._reason(body, raw)}",
        )  # fmt: skip
        with no_search_for_cycles():
            parts, misfits = reader.read_in_batches(bodies)
        return pa.concat_arrays([pa.array([], raw), *parts]), misfits

    def _together(self, bodies: pa.Array, raw: pa.StructType) -> pa.Array:
        """Read all bodies in one call of fastavro. Raises one of the errors in `NO_RECORD` if a body is not a valid
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
            row: Any = fastavro.schemaless_reader(stream, self.stored, None)
            if left := len(body) - stream.tell():
                return f"a record has {left} bytes less"
            pa.array([row], raw)
        except EOFError:
            return "they end before it does"
        except NO_RECORD as error:
            return str(error) or type(error).__name__
        raise AssertionError("a body that can be read alone can be read with others")


NO_RECORD = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, pa.ArrowException)
"""The errors that fastavro and Arrow raise for bytes that are not a valid record of the schema."""


def _number(number: int) -> bytes:
    """Encode a number as an Avro long."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, {"type": "long"}, number)
    return stream.getvalue()


class _Storing:
    """Rewrite schemas so that fastavro returns values in the form in which Avro stores them.

    A rewritten schema has no logical types. Texts are bytes, which need not be valid UTF-8. A map is an array of
    entries, and a value of a union of several types is a record with the value, so that its type is known. The values
    of a rewritten schema are encoded as the values of the schema.
    """

    def __init__(self) -> None:
        self._made = 0

    def stored(self, schema: Any) -> Any:
        """Return the rewritten schema."""
        if isinstance(schema, str):
            return "bytes" if schema == "string" else schema
        if isinstance(schema, list):
            several = sum(1 for one in schema if one not in ("null", {"type": "null"})) > 1
            rewritten = [self.stored(one) for one in schema]
            if not several:
                return rewritten
            some = iter(range(len(schema)))
            return [
                one if one in ("null", {"type": "null"}) else self._record({f"v{next(some)}": one}) for one in rewritten
            ]
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") == "map":
            return {"type": "array", "items": self._record({"key": "bytes", "value": self.stored(schema["values"])})}
        made: dict[str, Any] = {name: one for name, one in schema.items() if name not in ("logicalType", "default")}
        for name in ("type", "items"):
            if name in made:
                made[name] = self.stored(made[name])
        if isinstance(made.get("fields"), list):
            made["fields"] = [self.stored(one) for one in made["fields"]]
        return made

    def _record(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        self._made += 1
        parts = [{"name": name, "type": type} for name, type in fields.items()]
        return {"type": "record", "name": f"tailrace_record_{self._made}", "fields": parts}


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


def _refuse_endless(
    schema: Any, names: Mapping[str, Any], inside: tuple[str, ...], done: set[str], known: dict[str, int | None]
) -> None:
    """Refuse a schema if a few bytes could encode an endlessly large record.

    If a schema contains itself, a message could make fastavro recurse until the stack of the process overflows. If the
    items of an array are encoded in zero bytes, a short message could encode a huge number of items. `known` has the
    results of `_values_without_bytes` for the records so far.
    """
    schema = _resolved(schema, names)
    if isinstance(schema, dict) and schema.get("type") in ("record", "error"):
        if schema["name"] in inside:
            raise UnreadableSchemaError(f"the schema's {schema['name']} contains itself")
        if schema["name"] in done:
            return
        done.add(schema["name"])
        inside = (*inside, schema["name"])
    if isinstance(schema, dict) and schema.get("type") == "array":
        if _values_without_bytes(schema["items"], names, known) is not None:
            raise UnreadableSchemaError("the schema has an array of items that have no bytes")
    elif (_values_without_bytes(schema, names, known) or 0) > _WITHOUT_BYTES:
        raise UnreadableSchemaError(f"the schema's {schema['name']} has more than {_WITHOUT_BYTES} values but no bytes")
    for part in _parts(schema):
        _refuse_endless(part, names, inside, done, known)


def _levels(schema: Any, names: Mapping[str, Any], known: dict[str, int]) -> int:
    """Return the number of levels of records, arrays and maps in a schema that does not contain itself.

    `known` has the results for the records so far.
    """
    schema = _resolved(schema, names)
    if not isinstance(schema, dict):
        return max((_levels(part, names, known) for part in _parts(schema)), default=0)
    name = schema.get("name")
    if name is None or name not in known:
        deepest = max((_levels(part, names, known) for part in _parts(schema)), default=0)
        levels = deepest + (schema.get("type") in ("record", "error", "array", "map"))
        known |= {} if name is None else {name: levels}
        return levels
    return known[name]


_WITHOUT_BYTES = 100
"""The maximum number of values inside a value that is encoded in zero bytes."""


def _values_without_bytes(schema: Any, names: Mapping[str, Any], known: dict[str, int | None]) -> int | None:
    """Return how many values are inside a value of the schema, if it is encoded in zero bytes; otherwise, None."""
    schema = _resolved(schema, names)
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        name = schema["name"]
        if name not in known:
            # This entry ends the recursion for a schema that contains itself, which `_refuse_endless` refuses.
            known[name] = None
            inner = [_values_without_bytes(part, names, known) for part in _parts(schema)]
            some = [one for one in inner if one is not None]
            known[name] = 1 + sum(some) if len(some) == len(inner) else None
        return known[name]
    return 1 if kind == "null" or (kind == "fixed" and schema["size"] == 0) else None


class _Kinds:
    """The kinds of the values of schemas; each named type has one kind."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._records = dict[str, RecordKind]()

    def of(self, schema: Any) -> AnyKind:
        """Return the kind of values of a schema."""
        if isinstance(schema, dict) and (told := _OF_DEBEZIUM.get(schema.get("connect.name"))) is not None:
            return told
        schema = _resolved(schema, self._names)
        if isinstance(schema, list):
            some = [one for one in schema if _resolved(one, self._names) not in ("null", {"type": "null"})]
            if len(some) > 1:
                return UnionKind(tuple(map(self.of, some)))
            return self.of(some[0]) if some else kinds.NULL
        type = schema.get("type") if isinstance(schema, dict) else schema
        if type in ("record", "error"):
            if schema["name"] not in self._records:
                fields = {one["name"]: self.of(one["type"]) for one in schema["fields"]}
                self._records[schema["name"]] = RecordKind(schema["name"], fields)
            return self._records[schema["name"]]
        if type == "array":
            return ListKind(self.of(schema["items"]))
        if type == "map":
            return MapKind(kinds.UTF8, self.of(schema["values"]))
        return _plain_kind(schema, str(type))


def _plain_kind(schema: Any, type: str) -> AnyKind:
    """Return the kind of plain values."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if isinstance(schema, dict) and (told := _OF_DEBEZIUM.get(schema.get("connect.name"))) is not None:
        return told
    if logical == "decimal" and type in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= 38 and precision:
            return kinds.decimal_kind(precision, scale)
        return kinds.Unreadable(f"decimal({precision},{scale})")
    if logical == "uuid" and type == "fixed" and schema["size"] == 16:
        return kinds.UUID
    # Ignore a logical type whose stored type is not the expected type, as Avro's specification requires.
    stored, found = _LOGICAL.get(logical, ("", kinds.NULL))
    if stored == type:
        return found
    return _STORED[type] if type in _STORED else kinds.Unreadable(type)


_OF_DEBEZIUM: dict[Any, Kind] = {
    "io.debezium.time.Timestamp": kinds.MILLIS,
    "io.debezium.time.MicroTimestamp": kinds.MICROS,
    "io.debezium.time.NanoTimestamp": kinds.NANOS,
    "io.debezium.time.Date": kinds.DATE,
    "io.debezium.time.Time": kinds.TIME_MILLIS,
    "io.debezium.time.MicroTime": kinds.TIME_MICROS,
    "io.debezium.time.NanoTime": kinds.TIME_NANOS,
    "io.debezium.data.Json": replace(kinds.JSON, raw=pa.binary()),
}
"""The kind for each semantic type of numbers and texts that Debezium names in a schema.

Instants without a time zone are taken as UTC. Other times are texts, which are read as in JSON.
"""

_STORED = {
    "null": kinds.NULL, "boolean": kinds.BOOLEAN, "int": kinds.INT, "long": kinds.LONG, "float": kinds.FLOAT,
    "double": kinds.DOUBLE, "string": kinds.UTF8, "enum": kinds.ENUM, "bytes": kinds.BYTES, "fixed": kinds.BYTES,
}  # fmt: skip
_LOGICAL: dict[Any, tuple[str, Kind]] = {
    "date": ("int", kinds.DATE),
    "time-millis": ("int", kinds.TIME_MILLIS),
    "time-micros": ("long", kinds.TIME_MICROS),
    **{one.name: ("long", one) for one in (kinds.MILLIS, kinds.MICROS, kinds.NANOS, *kinds.LOCAL.values())},
}
