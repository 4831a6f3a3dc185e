"""Read the rows of a data file, converted to the table's current columns; Iceberg's field ids match the columns.

If possible, a file is read without pyiceberg's own reader, because that reader turns a null list of structs into an
empty list.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema


def batches_as_written(io: FileIO, schema: Schema, file: DataFile) -> Iterator[pa.RecordBatch] | None:
    """Return an iterator over a file's rows, converted to the columns of `schema`; columns that the file lacks are
    null.

    Returns None if a nested column has another type in the file.
    """
    arrow: pa.Schema = schema.as_arrow()
    with io.new_input(file.file_path).open() as opened, pq.ParquetFile(opened) as parquet:
        own = {field_id_of(field): field for field in parquet.schema_arrow}
    held = [own.get(field.field_id) for field in schema.fields]
    return _batches(io, file, held, arrow) if all(map(_as_it_is, held, arrow)) else None


def _batches(io: FileIO, file: DataFile, held: list[pa.Field | None], arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    with io.new_input(file.file_path).open() as opened, pq.ParquetFile(opened) as parquet:
        for batch in parquet.iter_batches(columns=[field.name for field in held if field is not None]):
            columns = [pa.nulls(len(batch)) if field is None else batch[field.name] for field in held]
            yield from pa.table(columns, arrow.names).cast(arrow).to_batches()


def field_id_of(field: pa.Field) -> int | None:
    """Return Iceberg's field id of a file's column, or None if the column has no field id."""
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if number is None else int(number)


def _as_it_is(held: pa.Field | None, wanted: pa.Field) -> bool:
    """Return True if a cast is enough to convert a file's column to the table's column.

    A cast is enough if the file lacks the column, if the column is not nested, or if both types are equal.
    """
    if held is None or not pa.types.is_nested(wanted.type):
        return True
    return bool(held.type.equals(wanted.type))
