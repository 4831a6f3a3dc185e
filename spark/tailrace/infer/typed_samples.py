"""Read a bounded sample of files that have a schema: Parquet and Avro. The schema gives the types of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.infer.columns import Given, place_text, unique
from tailrace.infer.observations import LONGEST_NAME
from tailrace.infer.sample import Sample, SampleError, json_object
from tailrace.infer.words import snake
from tailrace.ingest import column_values as kinds
from tailrace.ingest.avro_files import AvroFile, AvroRows
from tailrace.ingest.column_slices import open_parquet
from tailrace.ingest.column_types import parquet_type
from tailrace.ingest.column_values import AnyKind, Kind, ListKind, MapKind, RecordKind, UnionKind
from tailrace.ingest.kind_texts import json_text
from tailrace.ingest.parquet_reader import ParquetColumns
from tailrace.model.base.json_scalars import Number
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.base.types import is_type, struct_type
from tailrace.model.logs import shapes
from tailrace.model.logs.log import Log


def read_typed(sample: Sample, file: Path, most: int) -> bool:
    """Add at most so many records of a file; return whether these are all. Raises an error if it cannot be read."""
    sample.check = partial(_reasons, sample)
    try:
        return (_read_avro if sample.format == "avro" else _read_parquet)(sample, file, most)
    except pa.ArrowException as error:
        raise SampleError(f"{file} cannot be read as {sample.format}: {error}") from error


def _reasons(sample: Sample, log: Log) -> Iterator[str]:
    """Yield the reasons for which a log rejects the records of the sample."""
    for file, count in zip(sample.files, sample.parts, strict=True):
        left = count
        for read in _read(log, sample.format, file.path, file.source, count):
            yield from filter(None, read["_error"][:left].to_pylist())
            left -= read.num_rows
            if left <= 0:
                break


def _read(log: Log, format: str, file: Path, source: str, count: int) -> Iterator[pa.Table]:
    """Read the first records of a file as a stream does, valid and rejected ones."""
    if format == "avro":
        with pa.OSFile(str(file)) as opened:
            yield from AvroRows(log, AvroFile(opened)).read(source, 0)
        return
    with open_parquet(str(file)) as found:
        reader, begins = ParquetColumns.of(log, found).reader(), 0
        for batch in found.iter_batches(min(count, 1000)):
            yield from reader.read(pa.Table.from_batches([batch]), source, begins, END_OF_TIME)
            begins += batch.num_rows


def _read_avro(sample: Sample, file: Path, most: int) -> bool:
    with pa.OSFile(str(file)) as opened:
        avro = AvroFile(opened)
        for name, kind in avro.schema.kind.fields.items():
            add_types(sample, (name,), kind)
        rows = (row for some in avro.rows() for row in some)
        for row in islice(rows, most):
            record = json_object(json_text(avro.schema.kind, row, lossy=True).encode())
            sample.records.append({name: one for name, one in (record or {}).items() if name not in sample.left_out})
        return next(rows, None) is None


def _read_parquet(sample: Sample, file: Path, most: int) -> bool:
    with open_parquet(str(file)) as opened:
        for one in opened.schema_arrow:
            add_types(sample, (one.name,), one.type)
            sample.local |= _has_local_times(one.type)
        names = [one.name for one in opened.schema_arrow if one.name not in sample.left_out]
        read = 0
        for batch in opened.iter_batches(min(most, 1000), columns=names):
            some = batch.slice(0, most - read)
            records = list(_records(some))
            read += some.num_rows
            sample.unread += some.num_rows - len(records)
            sample.records += records
            if read == most:
                break
        return bool(read == opened.metadata.num_rows)


def _records(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch as records, without those that have an instant outside of the years 1 to 9999."""
    try:
        yield from [_as_json(row) for row in batch.to_pylist()]
    except (OverflowError, ValueError):
        if batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from _records(batch.slice(0, half))
            yield from _records(batch.slice(half))


def add_types(sample: Sample, place: shapes.Path, type: Any) -> None:
    """Add the declared types of a place and of the places inside it to a sample, for a type of Arrow or a kind."""
    places = dict[str, str]()
    found = _declared(type, "", places)
    if found is None:
        if len(place) == 1:
            sample.left_out.setdefault(place[0], str(type)[:100])
        return
    sample.local |= isinstance(type, Kind) and type.name.startswith("local-")
    sample.types.setdefault(place, Given(found, places=places))
    for name, inner in _fields(type).items():
        add_types(sample, (*place, name), inner)


def _fields(type: Any) -> Mapping[str, Any]:
    if isinstance(type, RecordKind):
        return type.fields
    return {one.name: one.type for one in type} if isinstance(type, pa.StructType) else {}


def _declared(type: Any, path: str, places: dict[str, str]) -> str | None:
    """Return the declared type for a type of Arrow or a kind of Avro, or None if there is none.

    The places of fields in structs are noted in `places`.
    """
    if isinstance(type, RecordKind | pa.StructType):
        return _struct(_fields(type), path, places)
    if isinstance(type, ListKind) or _is_list(type):
        inner = _declared(type.element if isinstance(type, ListKind) else type.value_type, path, places)
        return None if inner is None else f"array<{inner}>"
    if isinstance(type, MapKind):
        inner = _declared(type.value, path, places)
        return None if inner is None else f"map<string,{inner}>"
    if isinstance(type, pa.MapType):
        inner = _declared(type.item_type, path, places) if pa.types.is_string(type.key_type) else None
        return None if inner is None else f"map<string,{inner}>"
    found = _of_kind(type) if not isinstance(type, pa.DataType) else _of_arrow(type)
    return found if found is not None and is_type(found) else None


def _is_list(type: Any) -> bool:
    return isinstance(type, pa.DataType) and (pa.types.is_list(type) or pa.types.is_large_list(type))


def _struct(fields: Mapping[str, Any], path: str, places: dict[str, str]) -> str | None:
    taken, made = {name for name in fields if snake(name) == name}, dict[str, str]()
    for name, type in fields.items():
        own = name if name in taken else unique(snake(name), taken)
        inner = _declared(type, f"{path}.{own}", places)
        if inner is None or not name or len(name) > LONGEST_NAME:
            return None
        if own != name:
            places[f"{path}.{own}"] = place_text((name,))
        made[own] = inner
    return struct_type(made) if made else None


def _of_arrow(type: pa.DataType) -> str:
    return "timestamp" if pa.types.is_timestamp(type) else parquet_type(type)


def _of_kind(kind: AnyKind) -> str | None:
    """Return the declared type for a kind of plain values, or of values of several kinds."""
    if isinstance(kind, UnionKind):
        # Several kinds of values are kept as JSON, if each of them can be.
        return None if any(_declared(one, "", {}) is None for one in kind.branches) else "json"
    if not isinstance(kind, Kind):
        return None
    if kind.parts is not None:
        return str(kind)
    named = kind.name.removeprefix("local-").partition("-")[0]
    return {
        "null": "json", "long": "bigint", "uint32": "bigint", "enum": "string", "uuid": "string", "bytes": "binary",
        "uint64": f"decimal({kinds.UNSIGNED_LONG.digits},0)",
    }.get(named, named)  # fmt: skip


def _has_local_times(type: Any) -> bool:
    inner = any(_has_local_times(type.field(number).type) for number in range(type.num_fields))
    return inner or (pa.types.is_timestamp(type) and type.tz is None)


def _as_json(value: Any) -> Any:
    """Convert a value of a Parquet file to a value that a record in JSON has."""
    match value:
        case bool() | str() | None:
            return value
        case dict():
            return {name: _as_json(one) for name, one in value.items()}
        case list():
            return [_as_json(one) for one in value]
        case int() | Decimal():
            return Number(value)
        case float():
            return Number(repr(value)) if isfinite(value) else None
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return str(value)
