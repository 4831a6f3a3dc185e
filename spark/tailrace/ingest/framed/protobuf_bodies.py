"""Read the bodies of Protobuf messages that have the same schema, with Google's library.

A body begins with a path that identifies the body's message type in the schema's file. Confluent's serializers write
the path as zigzag varints: the number of indexes, followed by the indexes. A single zero stands for the first message
type. The process that requests schemas from the registry compiles each schema once with `protoc`, so the registry only
needs to return the text of the schema. The fields are read with library calls that loop over all messages in C. If a
body is not a valid message, the batch of bodies is bisected until that body is found.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter, itemgetter, methodcaller
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

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
    without_head,
)
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.schema_columns import SchemaColumns, UnreadableSchemaError, nulls_of
from tailrace.model.logs.log import Log
from tailrace.toolchain.process_folder import process_folder

SHAPES = 16
"""The maximum number of message types per batch whose bodies are read in bulk.

If a batch has more message types, the bodies of the remaining types are read one by one.
"""


def compile_schema(schema: RegisteredSchema) -> bytes:
    """Compile a schema, and return its descriptor set. The schema's own file is the last file in the descriptor set.

    Raises `UnreadableSchemaError` if the schema cannot be compiled; the message contains the output of `protoc`.
    """
    with tempfile.TemporaryDirectory(dir=process_folder()) as name:
        folder = Path(name)
        own = f"tailrace_schema_{schema.id}.proto"
        for file, text in (*schema.references, (own, schema.text)):
            path = PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts or "\\" in file:
                raise UnreadableSchemaError(f"the schema refers to {file!r}, which is no name of a file")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        made = folder / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}", "--include_imports"]
        command += [f"--descriptor_set_out={made}", own]
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if ran.returncode:
            raise UnreadableSchemaError(f"the schema cannot be compiled: {ran.stderr.strip().replace(chr(10), '; ')}")
        return made.read_bytes()


def message_fields(descriptors: bytes) -> list[list[str]]:
    """Return the field names of each message type that a compiled schema's own file declares, including nested
    types.
    """
    types = list(descriptor_pb2.FileDescriptorSet.FromString(descriptors).file[-1].message_type)
    for type in types:
        types += type.nested_type
    return [[field.name for field in type.field] for type in types]


class ProtobufBodies:
    """A reader that converts message bodies to a log's columns.

    All bodies have the same compiled schema. Each body may have any of the schema's message types.
    """

    def __init__(self, log: Log, descriptors: bytes) -> None:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        pool = DescriptorPool()
        for file in files:
            pool.Add(file)
        self._log, self._pool, self._file = log, pool, files[-1]
        self._types = dict[tuple[int, ...], _MessageType | str]()

    def read(self, bodies: pa.Array) -> tuple[dict[str, pa.Array], Misfits]:
        """Convert the bodies of messages to the log's columns.

        If a body is not a valid message, the columns are null for this body, and the reason is returned.
        """
        parts, misfits = list[tuple[pa.Array, dict[str, pa.Array]]](), Misfits()
        for path, places, rest in self._by_type(bodies, misfits):
            found = self._type(path)
            if isinstance(found, str):
                misfits |= dict.fromkeys(places.to_pylist(), found)
                continue
            columns, wrong = found.read(rest)
            misfits |= {places[place].as_py(): reason for place, reason in wrong.items()}
            parts.append((places, columns))
        if len(parts) == 1 and len(parts[0][0]) == len(bodies):
            return parts[0][1], misfits
        # Restore the original order of the bodies. A body without a message type belongs to no group, so its columns
        # are null.
        places = pa.concat_arrays([pa.array([], pa.int64()), *(places for places, _ in parts)])
        order = pc.index_in(pa.array(range(len(bodies)), pa.int64()), value_set=places)
        made = nulls_of(self._log, 0)
        for name, nothing in made.items():
            made[name] = pa.concat_arrays([nothing, *(columns[name] for _, columns in parts)]).take(order)
        return made, misfits

    def kind(self, body: bytes) -> RecordKind | None:
        """Return the kind of a body's message type, or None if the body names no type of the schema."""
        path = _path(body)[1]
        found = None if path is None else self._type(path)
        return found.kind if isinstance(found, _MessageType) else None

    def _by_type(self, bodies: pa.Array, misfits: Misfits) -> Iterable[tuple[tuple[int, ...], pa.Array, pa.Array]]:
        """Group the bodies by message type.

        Yields, for each group, the path that identifies the message type, the positions of the bodies, and the bodies
        without the path.
        """
        places = pa.array(range(len(bodies)), pa.int64())
        for _ in range(SHAPES):
            if not len(bodies):
                return
            prefix, path = _path(bodies[0].as_py())
            if path is None:
                misfits[places[0].as_py()] = _NO_INDEXES
                bodies, places = bodies.slice(1), places.slice(1)
                continue
            alike = pc.equal(pc.binary_slice(bodies, 0, len(prefix)), pa.scalar(prefix, pa.binary()))
            yield path, places.filter(alike), without_head(bodies.filter(alike), len(prefix))
            others = pc.invert(alike)
            bodies, places = bodies.filter(others), places.filter(others)
        for place, body in zip(places.to_pylist(), bodies.to_pylist(), strict=True):
            prefix, path = _path(body)
            if path is None:
                misfits[place] = _NO_INDEXES
            else:
                yield path, pa.array([place], pa.int64()), pa.array([body[len(prefix) :]], pa.binary())

    def _type(self, path: tuple[int, ...]) -> _MessageType | str:
        if path not in self._types:
            try:
                self._types[path] = _MessageType(self._log, self._pool, self._name(path))
            except UnreadableSchemaError as error:
                self._types[path] = str(error)
        return self._types[path]

    def _name(self, path: tuple[int, ...]) -> str:
        """Return the full name of the message type to which a path of indexes leads."""
        names, there = [self._file.package] if self._file.package else [], self._file.message_type
        for index in path:
            if not 0 <= index < len(there):
                raise UnreadableSchemaError(f"the schema has no message type at {list(path)}")
            names.append(there[index].name)
            there = there[index].nested_type
        return ".".join(names)


class _MessageType:
    """A reader for messages of one message type."""

    def __init__(self, log: Log, pool: DescriptorPool, name: str) -> None:
        self._descriptor = pool.FindMessageTypeByName(name)
        self._class = GetMessageClass(self._descriptor)
        self.kind = _record_kind(self._descriptor)
        self._columns = SchemaColumns.of(log, self.kind)
        self._raw = self._columns.raw

    def read(self, bodies: pa.Array) -> tuple[dict[str, pa.Array], Misfits]:
        reader = BulkReader(
            self._together, _NO_MESSAGE, pa.nulls(1, self._raw),
            lambda body, error: f"the bytes are no message of the schema: {error}",
        )  # fmt: skip
        with no_search_for_cycles():
            parts, misfits = reader.read_in_batches(bodies)
        made, unlike = self._columns.read(pa.concat_arrays([pa.array([], self._raw), *parts]))
        return made, {**unlike, **misfits}

    def _together(self, bodies: pa.Array) -> pa.StructArray:
        """Read message bodies. Raises one of the errors in `_NO_MESSAGE` if a body is not a valid message."""
        messages = list(map(self._class.FromString, bodies.to_pylist()))
        return _structs(self._descriptor, messages, self._raw, None)


_NO_MESSAGE = (DecodeError, ValueError, OverflowError, pa.ArrowException)
"""The errors that protobuf and Arrow raise for bytes that are not a valid message of the type."""


def _structs(
    descriptor: Descriptor, messages: Sequence[Any], raw: pa.StructType, there: pa.Array | None
) -> pa.StructArray:
    """Read fields of messages. The result is null for the messages that are not `there`."""
    fields = [_field(descriptor.fields_by_name[one.name], messages, one.type) for one in raw]
    nothing = pa.repeat(False, len(messages)) if there is None else pc.invert(there)
    return pa.StructArray.from_arrays(fields, fields=list(raw), mask=nothing)


def _field(field: FieldDescriptor, messages: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Read a field of messages. The value is null if a message lacks the field and the schema has no default."""
    values = list(map(attrgetter(field.name), messages))
    if not field.is_repeated:
        there = None
        if field.has_presence and not field.has_default_value:
            there = pa.array(list(map(methodcaller("HasField", field.name), messages)), pa.bool_())
        return _values(field, values, type, there)
    ends = pa.array([0, *accumulate(map(len, values))], pa.int32())
    entry = _entry(field)
    if entry is None:
        return pa.ListArray.from_arrays(ends, _values(field, list(chain.from_iterable(values)), type.value_type, None))
    pairs = list(chain.from_iterable(map(methodcaller("items"), values)))
    made = [
        _values(entry.fields_by_name[part.name], list(map(itemgetter(number), pairs)), part.type, None)
        for number, part in enumerate(type.value_type)
    ]
    return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(made, fields=list(type.value_type)))


def _values(field: FieldDescriptor, values: Sequence[Any], type: pa.DataType, there: pa.Array | None) -> pa.Array:
    """Convert values of a field, which are not lists; a value is null if it is not `there`."""
    message = field.message_type
    if message is None:
        found = pa.array(_named(field, values) if field.enum_type is not None else values, _KINDS[field.type].raw)
    elif message.full_name == _TIMESTAMP:
        found = _instants(field.name, values)
    elif message.full_name in _OF_JSON:
        shown = [None if there is not None and not there[n].as_py() else value for n, value in enumerate(values)]
        return pa.array([None if one is None else _json(one) for one in shown], type)
    elif _is_wrapper(message):
        inner = message.fields_by_name["value"]
        found = _values(inner, list(map(attrgetter("value"), values)), type, None)
    else:
        assert isinstance(type, pa.StructType)
        return _structs(message, values, type, there)
    # The keys of a map may be numbers, but the keys of a column are texts.
    found = found.cast(type)
    return found if there is None else pc.if_else(there, found, pa.scalar(None, type))


def _json(message: Any) -> str:
    return json.dumps(MessageToDict(message), ensure_ascii=False, separators=(",", ":"))


def _instants(name: str, messages: Sequence[Any]) -> pa.Array:
    seconds = pa.array(list(map(attrgetter("seconds"), messages)), pa.int64())
    nanos = pa.array(list(map(attrgetter("nanos"), messages)), pa.int64())
    if not pc.all(pc.and_(pc.greater_equal(nanos, 0), pc.less(nanos, 10**9)), min_count=0).as_py():
        raise ValueError(f"the nanoseconds of {name} are not below a second")
    # Round down to microseconds. In Protobuf, the nanoseconds are always added to the seconds, even before 1970.
    return pc.add_checked(pc.multiply_checked(seconds, 10**6), pc.divide(nanos, 1000))


def _named(field: FieldDescriptor, numbers: Sequence[int]) -> list[str]:
    """Return the names for numbers of an enum. Raises `ValueError` if the schema has no name for a number."""
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    try:
        return list(map(names.__getitem__, numbers))
    except KeyError as error:
        raise ValueError(f"{field.name} = {error} is no value of {field.enum_type.name}") from None


@dataclass(frozen=True)
class _FieldKinds(Mapping[str, AnyKind]):
    """The kinds of a message type's fields. A kind is found when it is asked for, as a type may contain itself."""

    descriptor: Descriptor

    def __getitem__(self, name: str) -> AnyKind:
        return _kind(self.descriptor.fields_by_name[name])

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in self.descriptor.fields)

    def __len__(self) -> int:
        return len(self.descriptor.fields)


def _record_kind(descriptor: Descriptor) -> RecordKind:
    return RecordKind(descriptor.full_name, _FieldKinds(descriptor), sparse=True)


def _kind(field: FieldDescriptor) -> AnyKind:
    """Return the kind of a field."""
    if not field.is_repeated:
        return _single_kind(field)
    entry = _entry(field)
    if entry is None:
        return ListKind(_single_kind(field))
    return MapKind(kinds.STRING, _single_kind(entry.fields_by_name["value"]))


def _single_kind(field: FieldDescriptor) -> AnyKind:
    """Return the kind of a field's values, which are not lists."""
    message = field.message_type
    if message is None:
        return _KINDS[field.type]
    if message.full_name == _TIMESTAMP:
        return kinds.MICROS
    if message.full_name in _OF_JSON:
        return kinds.JSON
    return _single_kind(message.fields_by_name["value"]) if _is_wrapper(message) else _record_kind(message)


def _entry(field: FieldDescriptor) -> Descriptor | None:
    """Return the message type of a map's entries, or None if the field is not a map."""
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


def _is_wrapper(message: Descriptor) -> bool:
    """Return True for a message type with a single value, such as `google.protobuf.Int64Value`."""
    return (
        message.full_name.startswith("google.protobuf.")
        and message.full_name.endswith("Value")
        and list(message.fields_by_name) == ["value"]
    )


def _path(body: bytes) -> tuple[bytes, tuple[int, ...] | None]:
    """Read the path of indexes that identifies a body's message type; return the path's bytes and the indexes.

    The indexes are None if the path is invalid.

    >>> _path(bytes([0, 8, 1])), _path(bytes([4, 2, 0, 8])), _path(bytes([128]))
    ((b'\\x00', (0,)), (b'\\x04\\x02\\x00', (1, 0)), (b'', None))
    """
    count, at = _varint(body, 0)
    if count == 0:
        return body[:at], (0,)
    indexes = list[int]()
    while count is not None and len(indexes) < count <= _DEEPEST:
        index, at = _varint(body, at)
        if index is None or index < 0:
            return b"", None
        indexes.append(index)
    return (body[:at], tuple(indexes)) if count is not None and len(indexes) == count else (b"", None)


def _varint(body: bytes, at: int) -> tuple[int | None, int]:
    """Read a zigzag varint at position `at`; return the number (None if invalid) and the position after the varint."""
    number = 0
    for place, byte in enumerate(body[at : at + 5]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at + place + 1
    return None, at


_DEEPEST = 100
"""The maximum depth to which message types may be nested."""

_NO_INDEXES = "the bytes do not begin with the place of a message type"
_TIMESTAMP = "google.protobuf.Timestamp"
_OF_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
"""The message types that represent any JSON."""

_KINDS: Mapping[int, Kind] = {
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32),
                    kinds.INT),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64),
                    kinds.LONG),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), kinds.UNSIGNED_INT),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), kinds.UNSIGNED_LONG),
    FieldDescriptor.TYPE_FLOAT: kinds.FLOAT,
    FieldDescriptor.TYPE_DOUBLE: kinds.DOUBLE,
    FieldDescriptor.TYPE_BOOL: kinds.BOOLEAN,
    FieldDescriptor.TYPE_STRING: kinds.STRING,
    FieldDescriptor.TYPE_BYTES: kinds.BYTES,
    FieldDescriptor.TYPE_ENUM: kinds.ENUM,
    # Groups are obsolete: a current schema has no fields of this kind.
    FieldDescriptor.TYPE_GROUP: kinds.NULL,
}  # fmt: skip
