"""Read the records of an Avro file as plain values, and write changed ones by the very same schema and header.

pyiceberg reads manifests by its own idea of their columns, and writes what it knows; a file that is only to name other
places has to keep all the rest, also what a later version of Iceberg has put there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.avro.codecs import KNOWN_CODECS

_MAGIC = b"Obj\x01"
_SYNC = 16
_HEADER = {"type": "map", "values": "bytes"}
_RAW = {"float": 4, "double": 8}
"""The types whose bytes are kept as they are, with their lengths."""


class AvroError(ValueError):
    """A file that is no Avro, or that has what Iceberg's files do not have."""


@dataclass(frozen=True)
class AvroFile:
    """The header and the records of an Avro file."""

    header: Mapping[str, bytes]
    sync: bytes
    records: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, data: bytes) -> AvroFile:
        """Read a file. Raises `AvroError` for what is no Avro file of Iceberg."""
        source = io.BytesIO(data)
        if source.read(len(_MAGIC)) != _MAGIC:
            raise AvroError("this is no Avro file")
        header = _decoder(_HEADER, {})(source)
        sync, codec = source.read(_SYNC), _codec(header)
        decode, records = _decoder(json.loads(header["avro.schema"]), {}), []
        while source.tell() < len(data):
            count, size = _long(source), _long(source)
            block = source.read(size)
            inner = io.BytesIO(block if codec is None else codec.decompress(block))
            records += [decode(inner) for _ in range(count)]
            if source.read(_SYNC) != sync:
                raise AvroError("an Avro file that is cut off or damaged")
        return cls(header, sync, tuple(records))

    def written(self, records: list[dict[str, Any]]) -> bytes:
        """Write a file with this one's header and other records."""
        encode, inner = _encoder(json.loads(self.header["avro.schema"]), {}), io.BytesIO()
        for record in records:
            encode(record, inner)
        out, codec = io.BytesIO(), _codec(self.header)
        out.write(_MAGIC)
        _encoder(_HEADER, {})(self.header, out)
        out.write(self.sync)
        if records:
            block = inner.getvalue() if codec is None else codec.compress(inner.getvalue())[0]
            _put_long(len(records), out)
            _put_long(len(block), out)
            out.write(block + self.sync)
        return out.getvalue()


def _codec(header: Mapping[str, bytes]) -> Any:
    name = header.get("avro.codec", b"null").decode()
    if name not in KNOWN_CODECS:
        raise AvroError(f"an Avro file that is compressed by {name}, which is not known")
    return KNOWN_CODECS[name]  # type: ignore[index]


def _long(source: io.BytesIO) -> int:
    value = shift = 0
    while True:
        one = source.read(1)
        if not one:
            raise AvroError("an Avro file that is cut off")
        value |= (one[0] & 0x7F) << shift
        if one[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7


def _put_long(value: int, out: io.BytesIO) -> None:
    left = value << 1 if value >= 0 else (-value << 1) - 1
    while left >= 0x80:
        out.write(bytes([left & 0x7F | 0x80]))
        left >>= 7
    out.write(bytes([left]))


def _bytes(source: io.BytesIO) -> bytes:
    return source.read(_long(source))


def _put_bytes(value: bytes, out: io.BytesIO) -> None:
    _put_long(len(value), out)
    out.write(value)


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return _kind(schema["type"]) if isinstance(schema, dict) else str(schema)


def _named(schema: Any, named: dict[str, Any]) -> Any:
    """Resolve a schema that is the name of one that was defined before, and note one that is defined here."""
    if isinstance(schema, str):
        return named.get(schema, schema)
    if isinstance(schema, dict) and "name" in schema and schema["type"] in ("record", "fixed", "enum"):
        named[schema["name"]] = schema
    return schema


def _decoder(schema: Any, named: dict[str, Any]) -> Callable[[io.BytesIO], Any]:
    """Make the reader of a value of a schema, once for all values."""
    schema = _named(schema, named)
    match _kind(schema):
        case "null":
            return lambda source: None
        case "boolean":
            return lambda source: source.read(1)
        case "int" | "long" | "enum":
            return _long
        case "float" | "double" as kind:
            return lambda source: source.read(_RAW[kind])
        case "bytes":
            return _bytes
        case "string":
            return lambda source: _bytes(source).decode()
        case "fixed":
            return lambda source: source.read(schema["size"])
        case "union":
            branches = [_decoder(one, named) for one in schema]
            return lambda source: branches[_long(source)](source)
        case "record":
            fields = [(one["name"], _decoder(one["type"], named)) for one in schema["fields"]]
            return lambda source: {name: decode(source) for name, decode in fields}
        case "array":
            return _items(_decoder(schema["items"], named))
        case "map":
            values = _decoder(schema["values"], named)
            entries = _items(lambda source: (_bytes(source).decode(), values(source)))
            return lambda source: dict(entries(source))
    raise AvroError(f"an Avro file with a type that is not known: {schema}")


def _items(decode: Callable[[io.BytesIO], Any]) -> Callable[[io.BytesIO], list[Any]]:
    def items(source: io.BytesIO) -> list[Any]:
        found = []
        while count := _long(source):
            if count < 0:
                # The number of bytes of the block follows.
                _long(source)
            found += [decode(source) for _ in range(abs(count))]
        return found

    return items


def _encoder(schema: Any, named: dict[str, Any]) -> Callable[[Any, io.BytesIO], None]:
    """Make the writer of a value of a schema, once for all values."""
    schema = _named(schema, named)
    match _kind(schema):
        case "null":
            return lambda value, out: None
        case "boolean" | "float" | "double" | "fixed":
            return lambda value, out: (out.write(value), None)[1]
        case "int" | "long" | "enum":
            return _put_long
        case "bytes":
            return _put_bytes
        case "string":
            return lambda value, out: _put_bytes(value.encode(), out)
        case "union":
            return _branch([(one, _encoder(one, named)) for one in schema])
        case "record":
            fields = [(one["name"], _encoder(one["type"], named)) for one in schema["fields"]]

            def record(value: Mapping[str, Any], out: io.BytesIO) -> None:
                for name, encode in fields:
                    encode(value[name], out)

            return record
        case "array":
            return _block(_encoder(schema["items"], named), list)
        case "map":
            values = _encoder(schema["values"], named)

            def entry(pair: tuple[str, Any], out: io.BytesIO) -> None:
                _put_bytes(pair[0].encode(), out)
                values(pair[1], out)

            return _block(entry, lambda value: list(value.items()))
    raise AvroError(f"an Avro file with a type that is not known: {schema}")


def _branch(branches: list[tuple[Any, Callable[[Any, io.BytesIO], None]]]) -> Callable[[Any, io.BytesIO], None]:
    """Make the writer of a value that may be null: Iceberg has no other unions."""
    if len(branches) > 2 or "null" not in [one for one, _ in branches]:
        raise AvroError("an Avro file with a union of two types")
    null = next(place for place, (one, _) in enumerate(branches) if one == "null")

    def branch(value: Any, out: io.BytesIO) -> None:
        place = null if value is None else 1 - null
        _put_long(place, out)
        branches[place][1](value, out)

    return branch


def _block(
    encode: Callable[[Any, io.BytesIO], None], listed: Callable[[Any], list[Any]]
) -> Callable[[Any, io.BytesIO], None]:
    def block(value: Any, out: io.BytesIO) -> None:
        items = listed(value)
        if items:
            _put_long(len(items), out)
            for one in items:
                encode(one, out)
        _put_long(0, out)

    return block
