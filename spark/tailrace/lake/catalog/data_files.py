"""Write rows to Parquet files, which a later commit adds to a table; collect the file statistics that this commit
needs.

Rows are passed directly to pyiceberg's file writer, because pyiceberg's own write function converts them first.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    ParquetFormatWriter,
    _dataframe_to_data_files,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import TimestamptzType

from tailrace.lake.catalog.column_encodings import encodings
from tailrace.lake.digests.commit_digest import keep_checksum
from tailrace.lake.digests.summed_output import SummedOutput
from tailrace.lake.metadata.null_lists import keep_null_lists
from tailrace.lake.schema.contracts import DIFFERENCES, PAGES
from tailrace.lake.schema.layouts import SPANS

keep_null_lists()

ROWS_A_GROUP = 122_880
"""The maximum number of rows in a Parquet row group. The value is DuckDB's default.

A reader skips a whole row group if the group's statistics show that no row is needed. Several cores can read one file
in parallel, but each row group is read by one core. Larger row groups would make both less effective.
"""


WRITING = {"write.parquet.dict-size-bytes": str(128 * 1024), "write.parquet.row-group-limit": str(ROWS_A_GROUP)}
"""The Parquet writer's default properties, which limit the size of a column's dictionary and of a row group.

The limit for a dictionary is a number of bytes. The limit for a row group is a number of rows.

A table's own properties override these defaults. If a dictionary exceeds the limit, the writer stops using it, so the
time for building it is wasted. This happens for columns whose values seldom repeat, such as timestamps and amounts:
dictionaries of up to 2 MB took a third of the writing time and made the files larger.
"""


MOST_FILES = 500
"""The maximum number of partitions, and therefore of files, that one write creates.

In a table that is partitioned by day, one write can therefore cover more than a year. If the rows belong to more than
this number of partitions, they are written to a few files under an earlier partitioning that has no year, month, day or
hour fields. Maintenance later moves these rows into their partitions.
"""


def write_files(table: Table, rows: pa.Table, most: int | None = None) -> Iterator[DataFile]:
    """Write rows to data files, one file for each partition that has rows; yield the files.

    `rows` has the table's columns. If the rows belong to more than `most` partitions (by default `MOST_FILES`), they
    are written under an earlier partitioning that has no year, month, day or hour fields.
    """
    spec, schema = table.metadata.spec(), table.schema()
    if _plan(table) is None:
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            # The commit lists the file under the partitioning whose id is `file.spec_id` (`lake.catalog.transactions`).
            file.spec_id = spec.spec_id
            yield file
        return
    parts = split_by_partition(spec, schema, rows)
    if len(parts) > (MOST_FILES if most is None else most) and (wider := _without_spans(table)) is not None:
        spec, parts = wider, split_by_partition(wider, schema, rows)
    for values, part in parts:
        yield _file(table, part, spec, values)


def _without_spans(table: Table) -> PartitionSpec | None:
    """Find an earlier partitioning that has all current partition fields except the year, month, day and hour fields.

    Returns None if the table never had such a partitioning.
    """

    def terms(spec: PartitionSpec) -> set[tuple[int, str]]:
        return {(field.source_id, str(field.transform)) for field in spec.fields if str(field.transform) not in SPANS}

    own = terms(table.spec())
    return next((spec for spec in table.specs().values() if terms(spec) == own and len(spec.fields) == len(own)), None)


def split_by_partition(spec: PartitionSpec, schema: Schema, rows: pa.Table) -> list[tuple[tuple[Any, ...], pa.Table]]:
    """Split rows by partition; return one pair for each partition: the partition's values, and its rows."""
    if spec.is_unpartitioned():
        return [((), rows)]
    columns = [_values(field, schema, rows) for field in spec.fields]
    values = pa.table(columns, [str(place) for place in range(len(columns))])
    starts = _starts(columns)
    there = values.take(starts).group_by(values.column_names).aggregate([])
    if there.num_rows < len(starts):
        if there.num_rows <= _FEW:
            return [(tuple(one.values()), rows.filter(_is(values, one))) for one in there.to_pylist()]
        order = pc.sort_indices(values, sort_keys=[(name, "ascending") for name in values.column_names])
        rows, values = rows.take(order), values.take(order)
        starts = _starts(values.combine_chunks().columns)
    # At this point, the rows of each partition are adjacent, so a slice returns these rows without a copy.
    ends = [*starts[1:].to_pylist(), rows.num_rows]
    firsts = map(tuple, (one.values() for one in values.take(starts).to_pylist()))
    return [
        (first, rows.slice(start, end - start))
        for first, start, end in zip(firsts, starts.to_pylist(), ends, strict=True)
    ]


_FEW = 16
"""The maximum number of partitions for which the rows are filtered once per partition.

If the rows belong to more partitions, they are sorted instead. If the rows of every partition are already adjacent,
they are neither filtered nor sorted.
"""


def _starts(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return the index of the first row of each group of adjacent rows that have equal values in all columns."""
    ends = pc.unique(pa.concat_arrays([pc.run_end_encode(_whole(column)).run_ends for column in columns]))
    return pa.concat_arrays([pa.array([0], ends.type), ends.sort()[:-1]])


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _is(values: pa.Table, one: Mapping[str, Any]) -> pa.ChunkedArray:
    """Return a mask of the rows that belong to one partition.

    `values` has the partition values of each row. `one` maps the name of each column in `values` to the partition's
    value.
    """
    columns = [(values[name], value) for name, value in one.items()]
    same = [
        pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
        for column, value in columns
    ]
    return reduce(pc.and_, same)


def _values(field: PartitionField, schema: Schema, rows: pa.Table) -> pa.ChunkedArray:
    """Compute the value of a partition field for each row."""
    source, column = schema.find_field(field.source_id), rows[schema.find_column_name(field.source_id)]
    if isinstance(field.transform, IdentityTransform):
        return column
    if isinstance(source.field_type, TimestamptzType) and str(field.transform) in SPANS:
        return _spans(str(field.transform), column)
    return field.transform.pyarrow_transform(source.field_type)(column)


def _spans(span: str, instants: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each instant's year, month, day or hour as Iceberg counts it: the number of such units since 1970."""
    if span in ("year", "month"):
        years = pc.subtract(pc.year(instants), 1970)
        return years if span == "year" else pc.add(pc.multiply(years, 12), pc.subtract(pc.month(instants), 1))
    micros, length = instants.cast(pa.int64()), _MICROSECONDS[span]
    # Integer division rounds towards zero, but the hour or day of an instant before 1970 has to be rounded down.
    floored = pc.if_else(pc.less(micros, 0), pc.subtract(micros, length - 1), micros)
    return pc.divide(floored, length)


_MICROSECONDS = {"hour": 3_600_000_000, "day": 86_400_000_000}


@dataclass(frozen=True)
class _Plan:
    """What the files of a table need of its schema and properties: the columns' ids, and the statistics to collect."""

    ids: Mapping[str, int]
    statistics: Mapping[int, Any]


_KEPT = 2048
"""The maximum number of plans that are cached: one for each table that a process writes."""

_plans = OrderedDict[tuple[Any, ...], _Plan]()


def _plan(table: Table) -> _Plan | None:
    """Return the plan of a table's files; None if Parquet cannot have the names of the table's columns as they are.

    To compute the plan takes as long as to write a small file, so plans are cached. A schema never changes its id.
    """
    schema, properties = table.schema(), {**WRITING, **table.metadata.properties}
    key = table.metadata.table_uuid, schema.schema_id, frozenset(properties.items())
    if (kept := _plans.get(key)) is not None:
        return kept
    if sanitize_column_names(schema) != schema:
        return None
    made = _Plan(parquet_path_to_id_mapping(schema), compute_statistics_plan(schema, properties))
    _plans[key] = made
    if len(_plans) > _KEPT:
        _plans.popitem(last=False)
    return made


class _PlannedWriter(ParquetFormatWriter):
    """A writer of a Parquet file that takes the plan of its table from the cache."""

    def __init__(self, output: Any, schema: Schema, properties: Mapping[str, str], plan: _Plan) -> None:
        super().__init__(output, schema, dict(properties))
        self._plan, self._differences = plan, properties.get(PAGES) == DIFFERENCES

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._parquet_writer_kwargs |= encodings(table) if self._differences else {}
        super().write(table)

    def close(self) -> DataFileStatistics:
        if self._result is None:
            assert self._writer is not None, "a file has rows"
            assert self._fos is not None, "a file that has a writer is open"
            with self._fos:
                self._writer.close()
                self._result = data_file_statistics_from_parquet_metadata(
                    self._writer.writer.metadata, dict(self._plan.statistics), dict(self._plan.ids)
                )
        return self._result


def _file(table: Table, rows: pa.Table, spec: PartitionSpec, values: Sequence[Any]) -> DataFile:
    metadata, model = table.metadata, FileFormatFactory.get(FileFormat.PARQUET)
    held = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, values, strict=True)]
    key = PartitionKey(held, spec, table.schema()) if held else None
    places = load_location_provider(table_location=metadata.location, table_properties=metadata.properties)
    path = places.new_data_location(data_file_name=f"{uuid.uuid4()}.{model.file_extension()}", partition_key=key)
    output = SummedOutput(table.io.new_output(path))
    plan = _plan(table)
    assert plan is not None, "Parquet has the columns' names"
    writer = _PlannedWriter(output, table.schema(), {**WRITING, **metadata.properties}, plan)
    with writer:
        writer.write(rows)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition if key else Record(),
        file_size_in_bytes=len(output),
        **writer.result().to_serialized_dict(),
    )
    # The commit lists the file under the partitioning whose id is `file.spec_id` (`lake.catalog.transactions`), even if
    # the table's current partitioning has changed.
    file.spec_id = spec.spec_id
    keep_checksum(file, output.checksum)
    return file
