"""Write rows as Parquet files that a table does not list yet, with the statistics that a commit states of them.

pyiceberg's own way turns a null list of structs into an empty one, so the rows go to its file writer directly.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import _dataframe_to_data_files, _determine_partitions
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

DICTIONARY = {"write.parquet.dict-size-bytes": str(128 * 1024)}
"""The largest dictionary of a column, in bytes: a dictionary that grows past it is given up, and was made for nothing.

A table's own property overrides it. For instants and amounts, which seldom repeat, dictionaries of 2 MB took a third of
the time of writing, and the files were larger.
"""


def written_files(table: Table, rows: pa.Table) -> Iterator[DataFile]:
    """Write rows with the table's own columns, one file for each partition that has rows; yield the files."""
    for file in _written(table, rows):
        # A commit lists the file under this partitioning (`lake.catalog.transactions`), whatever the table's is then.
        file.spec_id = table.metadata.default_spec_id
        yield file


def _written(table: Table, rows: pa.Table) -> Iterator[DataFile]:
    spec, schema = table.metadata.spec(), table.schema()
    if sanitize_column_names(schema) != schema:
        yield from _dataframe_to_data_files(table.metadata, rows, table.io)
        return
    if spec.is_unpartitioned():
        yield _file(table, rows, None)
        return
    stretches = _stretches(spec, schema, rows)
    if stretches is not None:
        # pyiceberg would search for each partition's rows and copy them; rows that lie together are only sliced.
        for stretch in stretches:
            (first,) = _determine_partitions(spec=spec, schema=schema, arrow_table=stretch.slice(0, 1))
            yield _file(table, stretch, first.partition_key)
        return
    for partition in _determine_partitions(spec=spec, schema=schema, arrow_table=rows):
        yield _file(table, partition.arrow_table_partition, partition.partition_key)


def _stretches(spec: PartitionSpec, schema: Schema, rows: pa.Table) -> list[pa.Table] | None:
    """Slice rows by partition where each partition's rows follow one another; None where they do not.

    None, too, where a transform other than identity partitions the table: the rows do not show its partitions.
    """
    if not all(isinstance(field.transform, IdentityTransform) for field in spec.fields):
        return None
    columns = [rows[schema.find_column_name(field.source_id)].combine_chunks() for field in spec.fields]
    ends = sorted({end for column in columns for end in pc.run_end_encode(column).run_ends.to_pylist()})
    starts = [0, *ends][:-1]
    if len({tuple(column[start].as_py() for column in columns) for start in starts}) < len(starts):
        return None
    return [rows.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _file(table: Table, rows: pa.Table, key: PartitionKey | None) -> DataFile:
    metadata, model = table.metadata, FileFormatFactory.get(FileFormat.PARQUET)
    places = load_location_provider(table_location=metadata.location, table_properties=metadata.properties)
    path = places.new_data_location(data_file_name=f"{uuid.uuid4()}.{model.file_extension()}", partition_key=key)
    output = table.io.new_output(path)
    writer = model.create_writer(output, table.schema(), {**DICTIONARY, **metadata.properties})
    with writer:
        writer.write(rows)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition if key else Record(),
        file_size_in_bytes=len(output),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )
