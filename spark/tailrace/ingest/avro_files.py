"""Read Avro's object container files: a header with the schema, and blocks of records.

The blocks are unpacked one by one, and fastavro reads their records some at a time, so the memory does not depend on
the sizes of files. Each block ends with the file's marker, and its records must fill it exactly. If they do not, or if
the file ends within a block, the file is damaged, and none of its records counts.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Any

import fastavro
import pyarrow as pa

from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.ingest.avro_schema import NO_RECORD, AvroSchema
from tailrace.ingest.column_values import LARGEST, TOGETHER
from tailrace.ingest.folder_values import FolderValues, folder_reasons
from tailrace.ingest.judged_records import judged_records
from tailrace.ingest.kind_texts import json_text
from tailrace.ingest.plain_columns import schema_of
from tailrace.ingest.schema_columns import SchemaColumns, UnreadableSchemaError, nulls_of
from tailrace.model.logs.json_records import JsonRecords
from tailrace.model.logs.log import Log, too_large

BLOCK = 64 * 2**20
"""The maximum size of an unpacked block in bytes; a file with a larger block is not read."""

_XZ_MEMORY = 128 * 2**20
"""The maximum number of bytes of memory that unpacking a block of xz takes."""

_HEADER = 16 * 2**20
"""The maximum size of a file's header in bytes."""


class DamagedAvroError(ValueError):
    """The error for a file that is no container file, or is damaged; the message states the reason."""


class AvroFile:
    """An open container file. `schema` is the schema with which its records were written."""

    def __init__(self, file: Any) -> None:
        """Read the header. Raises `DamagedAvroError` if the file is no container file whose records can be read."""
        self._file = file
        start = io.BytesIO(bytes(file.read(_HEADER)))
        try:
            header: Any = fastavro.schemaless_reader(start, _HEADER_SCHEMA, None)
        except NO_RECORD as error:
            raise DamagedAvroError("it does not begin as a container file of Avro") from error
        meta = header["meta"]
        self._marker, self._begins = header["sync"], start.tell()
        codec = meta.get("avro.codec", b"null").decode(errors="replace")
        if header["magic"] != _MAGIC or "avro.schema" not in meta:
            raise DamagedAvroError("it does not begin as a container file of Avro")
        if codec not in _CODECS:
            raise DamagedAvroError(f"its codec {codec[:50]!r} is none of {', '.join(_CODECS)}")
        self._unpack = _CODECS[codec]
        try:
            self.schema = AvroSchema(meta["avro.schema"].decode())
        except (UnreadableSchemaError, UnicodeDecodeError) as error:
            raise DamagedAvroError(str(error)) from error

    def rows(self, most: int = BLOCK) -> Iterator[list[dict[str, Any] | None]]:
        """Yield the records as fastavro returns them, some at a time; None stands for a record of over `most` bytes.

        Raises `DamagedAvroError` for a damaged block.
        """
        # fastavro reads the blocks after they were unpacked, out of a file with one schema for all blocks.
        stream: Any = _Unpacked(self.schema.stored, self._marker)
        blocks, made, size = iter(fastavro.block_reader(stream)), list[Any](), 0
        for begins, count, data in self._parts(most):
            if data is None:
                made += [None] * count
                continue
            stream.put(count, data)
            block: Any = next(blocks)
            try:
                records, left = iter(block), count
                while left:
                    some = max(1, min(TOGETHER - len(made), (LARGEST - size) * count // len(data), left))
                    made += islice(records, some)
                    left, size = left - some, size + some * len(data) // count
                    if len(made) >= TOGETHER or size >= LARGEST - len(data) // count:
                        yield made
                        made, size = [], 0
            except NO_RECORD as error:
                raise DamagedAvroError(f"the block at byte {begins:,} has no records of the schema: {error}") from error
            if rest := len(data) - block.bytes_.tell():
                raise DamagedAvroError(f"the block at byte {begins:,} has {rest:,} bytes after its records")
        if made:
            yield made

    def _parts(self, most: int) -> Iterator[tuple[int, int, bytes | None]]:
        """Yield the parts of blocks: the first byte of the block, the number of records, and their unpacked bytes.

        For records of over `most` bytes, the bytes are None.
        """
        for begins, count, data in self._blocks():
            if count > len(data):
                raise DamagedAvroError(f"the block at byte {begins:,} has {count:,} records in {len(data):,} bytes")
            if len(data) <= most:
                yield begins, count, data
                continue
            ends = self._ends(begins, count, data)
            large = [end - start > most for start, end in pairwise(ends)]
            cuts = [0, *(place for place in range(1, count) if large[place] != large[place - 1]), count]
            for first, after in pairwise(cuts):
                yield begins, after - first, None if large[first] else data[ends[first] : ends[after]]

    def _ends(self, begins: int, count: int, data: bytes) -> list[int]:
        """Return the position after each record of a block, with a zero before them, without reading the records."""
        stream, ends = io.BytesIO(data), [0]
        nothing = {"type": "record", "name": self.schema.stored["name"], "fields": []}
        try:
            for _ in range(count):
                fastavro.schemaless_reader(stream, self.schema.stored, nothing)
                ends.append(stream.tell())
        except NO_RECORD as error:
            raise DamagedAvroError(f"the block at byte {begins:,} has no records of the schema: {error}") from error
        if rest := len(data) - ends[-1]:
            raise DamagedAvroError(f"the block at byte {begins:,} has {rest:,} bytes after its records")
        return ends

    def _blocks(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the first byte of each block, the number of its records, and its unpacked bytes."""
        at, end = self._begins, int(self._file.size())
        while at < end:
            self._file.seek(at)
            start = bytes(self._file.read(_LONGS))
            count, first = _number(start, 0, at)
            size, first = _number(start, first, at)
            if count < 0 or size < 0 or at + first + size + len(self._marker) > end:
                raise DamagedAvroError(f"the file ends within the block at byte {at:,}")
            if size > BLOCK:
                raise DamagedAvroError(_too_large(at))
            self._file.seek(at + first)
            packed, marker = bytes(self._file.read(size)), bytes(self._file.read(len(self._marker)))
            if marker != self._marker:
                raise DamagedAvroError(f"the block at byte {at:,} does not end with the file's marker")
            try:
                data = self._unpack(packed)
            except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
                raise DamagedAvroError(f"the block at byte {at:,} cannot be unpacked: {error}") from error
            if len(data) > BLOCK:
                raise DamagedAvroError(_too_large(at))
            yield at, count, data
            at += first + size + len(self._marker)


class _Unpacked(io.RawIOBase):
    """A container file out of which fastavro reads blocks that are not packed; `put` adds the next block."""

    def __init__(self, schema: Any, marker: bytes) -> None:
        self._marker, self._next = marker, io.BytesIO()
        fastavro.writer(self._next, schema, [], codec="null", sync_marker=marker)
        self._next.seek(0)

    def put(self, count: int, data: bytes) -> None:
        self._next = io.BytesIO(b"".join((_long(count), _long(len(data)), data, self._marker)))

    def read(self, size: int = -1) -> bytes:
        return self._next.read(size)

    def tell(self) -> int:
        return self._next.tell()


class AvroRows:
    """The reader that converts the records of a container file to a log's columns."""

    def __init__(self, log: Log, file: AvroFile) -> None:
        self.log, self._file, self._kind, self._values = log, file, file.schema.kind, JsonRecords(log)
        self._columns: SchemaColumns | str
        try:
            self._columns = SchemaColumns.of(log, self._kind)
        except UnreadableSchemaError as error:
            self._columns = str(error)

    def read(self, source: str, arrived: int) -> Iterator[pa.Table]:
        """Read records, valid and rejected ones (`plain_columns.schema_of`), with their indexes as positions.

        If the log's columns cannot hold the fields of the schema, each record is rejected. A rejected record is kept as
        JSON. `arrived` is the time at which the file was written, in microseconds.
        """
        begins, rows = 0, self._file.rows(self.log.record_bytes)
        while True:
            with no_search_for_cycles():
                some = next(rows, None)
                if some is None:
                    return
                table = self._records(some, source, begins, arrived)
            yield table
            begins += len(some)

    def _records(self, rows: list[dict[str, Any] | None], source: str, begins: int, arrived: int) -> pa.Table:
        count = len(rows)
        at = pa.scalar(arrived, schema_of(self.log).field("_arrival").type)
        places = pa.table({
            "_source": pa.repeat(pa.scalar(source), count), "_offset": pa.arange(begins, begins + count),
            "_arrival": pa.repeat(at, count),
        })  # fmt: skip
        if isinstance(self._columns, str):
            columns, misfits = nulls_of(self.log, count), dict.fromkeys(range(count), self._columns)
        else:
            columns, misfits = self._columns.read(pa.array(rows, self._columns.raw))
            placed = FolderValues.of(self._values, columns, places["_source"].chunk(0))
            if placed.misfits.any():
                misfits = folder_reasons(self._values, columns, source, placed.misfits) | misfits
            columns |= placed.columns
        misfits |= {place: too_large(self.log) for place, row in enumerate(rows) if row is None}

        def raw(some: pa.Array) -> pa.Array:
            given = (rows[place] for place in some.to_pylist())
            texts = (None if row is None else json_text(self._kind, row, lossy=True).encode() for row in given)
            return pa.array(texts, pa.binary())

        return judged_records(self.log, columns, places, misfits, raw)


def _long(number: int) -> bytes:
    """Encode a number as an Avro long."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, {"type": "long"}, number)
    return stream.getvalue()


def _number(data: bytes, at: int, block: int) -> tuple[int, int]:
    """Read an Avro long; return it and the position after it."""
    number = 0
    for place, byte in enumerate(data[at : at + 10]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise DamagedAvroError(f"the file ends within the block at byte {block:,}")


def _too_large(at: int) -> str:
    return f"the block at byte {at:,} has more than {BLOCK:,} bytes: write smaller blocks"


def _inflated(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
    return _whole(unpacking.decompress(data, BLOCK + 1), unpacking.eof)


def _of_bzip2(data: bytes) -> bytes:
    unpacking = bz2.BZ2Decompressor()
    return _whole(unpacking.decompress(data, BLOCK + 1), unpacking.eof)


def _of_xz(data: bytes) -> bytes:
    unpacking = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
    return _whole(unpacking.decompress(data, BLOCK + 1), unpacking.eof)


def _whole(data: bytes, ended: bool) -> bytes:
    if not ended and len(data) <= BLOCK:
        raise ValueError("it ends too early")
    return data


def _of_zstandard(data: bytes) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(BLOCK + 1))


def _of_snappy(data: bytes) -> bytes:
    """Unpack Snappy, after which Avro has a checksum of the unpacked bytes."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            break
    if size > BLOCK:
        return bytes(BLOCK + 1)
    made = bytes(pa.Codec("snappy").decompress(data[:-4], size))
    if zlib.crc32(made) != int.from_bytes(data[-4:], "big"):
        raise ValueError("its checksum is wrong")
    return made


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes, "deflate": _inflated, "snappy": _of_snappy, "zstandard": _of_zstandard, "bzip2": _of_bzip2,
    "xz": _of_xz,
}  # fmt: skip
_MAGIC = b"Obj\x01"
_LONGS = 20
"""The maximum number of bytes of two Avro longs."""

_HEADER_SCHEMA = fastavro.parse_schema({
    "type": "record", "name": "tailrace_header", "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "tailrace_magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "tailrace_sync", "size": 16}},
    ]
})  # fmt: skip
