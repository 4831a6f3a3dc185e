"""Read the records of an Avro file as plain values, and write changed records with the same file header.

pyiceberg reads and writes only those columns of a manifest that it supports. If only the file addresses in a manifest
change, all other data has to be kept, including columns of a later version of Iceberg.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import fastavro

_SYNC = 16


class AvroError(ValueError):
    """The error that is raised if a file is not an Avro file, is damaged, or uses a compression that is not
    installed.
    """


@dataclass(frozen=True)
class AvroFile:
    """An Avro file: its header, as bytes, and its records, in which dates, times and decimals have their stored
    values.
    """

    header: bytes
    records: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, data: bytes) -> AvroFile:
        """Read a file from its bytes. Raises `AvroError` if the file cannot be read."""
        source = io.BytesIO(data)
        try:
            fastavro.reader(source)
            file = cls(data[: source.tell()], ())
            stored: Any = fastavro.reader(io.BytesIO(file._stored([]) + data[source.tell() :]))
            return replace(file, records=tuple(stored))
        except (ValueError, EOFError, KeyError, TypeError, IndexError) as error:
            raise AvroError(f"an Avro file that is damaged, or is none: {error}") from error

    def with_records(self, records: Sequence[Mapping[str, Any]]) -> bytes:
        """Encode the given records as a file with this file's header."""
        return self.header + self._stored(records)[len(self._stored([])) :]

    def _stored(self, records: Sequence[Mapping[str, Any]]) -> bytes:
        """Encode a file with these records under a schema without logical types, so that all values keep their stored
        form.

        With logical types, a decimal of more than 28 digits would be rounded, and a time after the year 9999 would be
        rejected.
        """
        own: Any = fastavro.reader(io.BytesIO(self.header))
        out = io.BytesIO()
        fastavro.writer(out, _stored(own.writer_schema), records, own.codec, sync_marker=self.header[-_SYNC:])
        return out.getvalue()


def _stored(schema: Any) -> Any:
    """Return a copy of an Avro schema without its logical types."""
    if isinstance(schema, list):
        return [_stored(one) for one in schema]
    if isinstance(schema, dict):
        return {name: _stored(one) for name, one in schema.items() if name != "logicalType"}
    return schema
