"""Read the bodies of Protobuf messages that have the same schema, with Google's library.

A body begins with a path that identifies the body's message type in the schema's file. Confluent's serializers write
the path as zigzag varints: the number of indexes, followed by the indexes. A single zero stands for the first message
type. The process that requests schemas from the registry compiles each schema once with `protoc`, so the registry only
needs to return the text of the schema. The fields are read with library calls that loop over all messages in C. If a
body is not a valid message, the batch of bodies is bisected until that body is found.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, methodcaller
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.ingest.framed import column_values as kinds
from tailrace.ingest.framed.column_values import BulkReader, Kind, Misfits, without_head
from tailrace.ingest.framed.schema_columns import SchemaColumns, UnreadableSchemaError
from tailrace.ingest.framed.schema_registry import RegisteredSchema
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
        nowhere = SchemaColumns(self._log, {}, {})
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
        made, _ = nowhere.columns({}, 0)
        for name, nothing in made.items():
            made[name] = pa.concat_arrays([nothing, *(columns[name] for _, columns in parts)]).take(order)
        return made, misfits

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
        descriptor = pool.FindMessageTypeByName(name)
        self._class = GetMessageClass(descriptor)
        fields: Mapping[str, FieldDescriptor] = {field.name: field for field in descriptor.fields}
        self._columns = SchemaColumns.of(log, {name: _kind(field) for name, field in fields.items()})
        self._fields = {name: _Field(fields[name], kind) for name, kind in self._kinds.items()}

    @property
    def _kinds(self) -> dict[str, Kind]:
        return {self._columns.fields[column]: kind for column, kind in self._columns.kinds.items()}

    def read(self, bodies: pa.Array) -> tuple[dict[str, pa.Array], Misfits]:
        nothing = {name: pa.nulls(1, field.kind.raw) for name, field in self._fields.items()}
        reader = BulkReader(
            self._values, _NO_MESSAGE, nothing, lambda body, error: f"the bytes are no message of the schema: {error}"
        )
        with no_search_for_cycles():
            parts, misfits = reader.read_in_batches(bodies)
        values = {name: pa.concat_arrays([pa.array([], kind.raw), *(one[name] for one in parts)])
                  for name, kind in self._kinds.items()}  # fmt: skip
        made, unlike = self._columns.columns(values, len(bodies))
        return made, {**unlike, **misfits}

    def _values(self, bodies: pa.Array) -> dict[str, pa.Array]:
        """Read the fields of message bodies. Raises one of the errors in `_NO_MESSAGE` if a body is not a valid
        message.
        """
        messages = list(map(self._class.FromString, bodies.to_pylist()))
        return {name: field.values(messages) for name, field in self._fields.items()}


_NO_MESSAGE = (DecodeError, ValueError, OverflowError, pa.ArrowException)
"""The errors that protobuf and Arrow raise for bytes that are not a valid message of the type."""


@dataclass(frozen=True)
class _Field:
    """A field of a message type; its values are read from many messages at once."""

    field: FieldDescriptor
    kind: Kind

    def values(self, messages: list[Any]) -> pa.Array:
        """Return the field's raw value for each message.

        The value is null if a message lacks the field and the schema has no default.
        """
        name = self.field.name
        wrapped = self.field.message_type
        if wrapped is not None and wrapped.full_name == _TIMESTAMP:
            seconds = pa.array(list(map(attrgetter(f"{name}.seconds"), messages)), pa.int64())
            nanos = pa.array(list(map(attrgetter(f"{name}.nanos"), messages)), pa.int64())
            if not pc.all(pc.and_(pc.greater_equal(nanos, 0), pc.less(nanos, 10**9)), min_count=0).as_py():
                raise ValueError(f"the nanoseconds of {name} are not below a second")
            # Round down to microseconds. In Protobuf, the nanoseconds are always added to the seconds, even before
            # 1970.
            found = pc.add_checked(pc.multiply_checked(seconds, 10**6), pc.divide(nanos, 1000))
        else:
            read = list(map(attrgetter(name if wrapped is None else f"{name}.value"), messages))
            found = pa.array(self._named(read) if self.field.enum_type is not None else read, self.kind.raw)
        if not self._may_lack:
            return found
        there = pa.array(list(map(methodcaller("HasField", name), messages)), pa.bool_())
        return pc.if_else(there, found, pa.scalar(None, self.kind.raw))

    @cached_property
    def _may_lack(self) -> bool:
        return self.field.has_presence and not self.field.has_default_value

    @cached_property
    def _names(self) -> dict[int, str]:
        return {number: value.name for number, value in self.field.enum_type.values_by_number.items()}

    def _named(self, numbers: list[int]) -> list[str]:
        """Return the names for numbers of an enum. Raises `ValueError` if the schema has no name for a number."""
        try:
            return list(map(self._names.__getitem__, numbers))
        except KeyError as error:
            raise ValueError(f"{self.field.name} = {error} is no value of {self.field.enum_type.name}") from None


def _kind(field: FieldDescriptor) -> Kind | str:
    """Return the kind of a field.

    If no column can hold the field's values, the result is instead a description of the field for users.
    """
    if field.is_repeated:
        return "a list or a map"
    if field.message_type is None:
        return _KINDS[field.type]
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return kinds.MICROS
    if (
        name.startswith("google.protobuf.")
        and name.endswith("Value")
        and list(field.message_type.fields_by_name) == ["value"]
    ):
        return _kind(field.message_type.fields_by_name["value"])
    return f"a message of type {name}"


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
    FieldDescriptor.TYPE_STRING: kinds.TEXT,
    FieldDescriptor.TYPE_BYTES: kinds.BYTES,
    FieldDescriptor.TYPE_ENUM: kinds.STRING,
    # Groups are obsolete: a current schema has no fields of this kind.
    FieldDescriptor.TYPE_GROUP: kinds.NULL,
}  # fmt: skip
