"""Read the records of an Avro file as plain values, and write changed records under the very same header.

pyiceberg reads manifests by its own idea of their columns, and writes the columns that it knows. A file that only has
to name other places keeps all the rest, including columns of a later version of Iceberg.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import fastavro

_SYNC = 16


class AvroError(ValueError):
    """A file that is no Avro file, or is damaged, or has a compression that is not installed."""


@dataclass(frozen=True)
class AvroFile:
    """The header of an Avro file, as bytes, and its records: dates, instants and decimals as they are stored."""

    header: bytes
    records: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, data: bytes) -> AvroFile:
        """Read a file. Raises `AvroError` where it cannot be read."""
        source = io.BytesIO(data)
        try:
            fastavro.reader(source)
            file = cls(data[: source.tell()], ())
            stored: Any = fastavro.reader(io.BytesIO(file._stored([]) + data[source.tell() :]))
            return replace(file, records=tuple(stored))
        except (ValueError, EOFError, KeyError, TypeError, IndexError) as error:
            raise AvroError(f"an Avro file that is damaged, or is none: {error}") from error

    def with_records(self, records: Sequence[Mapping[str, Any]]) -> bytes:
        """Encode a file with the same header and other records."""
        return self.header + self._stored(records)[len(self._stored([])) :]

    def _stored(self, records: Sequence[Mapping[str, Any]]) -> bytes:
        """Write a file of records without the logical types, whose values are then taken as they are stored.

        By the logical type, a decimal of more than 28 digits is rounded, and an instant beyond the year 9999 refused.
        """
        own: Any = fastavro.reader(io.BytesIO(self.header))
        out = io.BytesIO()
        fastavro.writer(out, _stored(own.writer_schema), records, own.codec, sync_marker=self.header[-_SYNC:])
        return out.getvalue()


def _stored(schema: Any) -> Any:
    """Return a schema without the logical types."""
    if isinstance(schema, list):
        return [_stored(one) for one in schema]
    if isinstance(schema, dict):
        return {name: _stored(one) for name, one in schema.items() if name != "logicalType"}
    return schema
