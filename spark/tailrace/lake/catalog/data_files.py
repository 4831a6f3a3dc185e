"""Write rows as Parquet files of a table, which it does not have yet, with the statistics that a commit says of them.

pyiceberg's own writer makes an empty list of a null one where a list has structs in it, so the rows go to its file
writer as they are.
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
"""How large a column's dictionary may become: one that grows past it is given up, and its making was for nothing.

A table's own property goes before. Of instants and amounts, which are seldom alike, 2 MB took a third of the time of
writing, and the files were larger.
"""


def written_files(table: Table, rows: pa.Table) -> Iterator[DataFile]:
    """Write rows with a table's own columns: a file for each of its partitions that has some."""
    for file in _written(table, rows):
        # What a commit lists the file by (`lake.catalog.transactions`), whatever the partitioning is by then.
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
        # Of rows that lie together pyiceberg would look for those of each partition, and copy them.
        for stretch in stretches:
            (first,) = _determine_partitions(spec=spec, schema=schema, arrow_table=stretch.slice(0, 1))
            yield _file(table, stretch, first.partition_key)
        return
    for partition in _determine_partitions(spec=spec, schema=schema, arrow_table=rows):
        yield _file(table, partition.arrow_table_partition, partition.partition_key)


def _stretches(spec: PartitionSpec, schema: Schema, rows: pa.Table) -> list[pa.Table] | None:
    """The rows of each partition, where those of each follow one another; None where they do not, or nobody can say.

    Only a partition by values as they are is seen of the rows themselves.
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
