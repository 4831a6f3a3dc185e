"""Read a micro-batch into this process, without Spark if the source's format allows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.decoded_sizes import check_size
from tailrace.ingest.json_reader import read_lines
from tailrace.ingest.parsing import raw_messages, read_files
from tailrace.ingest.plain_files import read_plain, unreadable_rows
from tailrace.ingest.room import Room
from tailrace.ingest.sources import TYPED, Files
from tailrace.model.logs.log import Log


def file_rows(
    spark: SparkSession, source: Files, log: Log, paths: Sequence[str], blank: BlankLines | None = None,
    unreadable: Mapping[str, str] | None = None, room: Room | None = None,
) -> pa.Table:  # fmt: skip
    """Read the records of files into this process, with the same columns as `read_files` returns.

    Raises the same errors as `read_files`, and `TooLargeError` if the records do not fit in the available memory
    (`room`).
    """
    counting, space, known = blank or BlankLines(), room or Room(), unreadable or {}
    left = [path for path in paths if path not in known]
    if source.format in TYPED or not known:
        found = read_plain(log, source.format, left, counting, space)
        if found is not None:
            return pa.concat_tables([found, unreadable_rows(log, known)])
    check_size(left, Room(space.limit, space.files))
    return read_files(spark, source, log, paths, counting, unreadable).toArrow()


def message_rows(spark: SparkSession, log: Log, batch: DataFrame, room: Room | None = None) -> pa.Table:
    """Read the records of a topic's messages slice by slice, with the same columns as `read_messages` returns."""
    lines = raw_messages(spark, batch)
    return pa.concat_tables([read_lines(log, some) for some in _slices(lines, (room or Room()).slice)])


def _slices(lines: pa.Table, most: int) -> Iterator[pa.Table]:
    """Cut a table of lines into slices of about `most` bytes. If there are no lines, there is one empty slice."""
    rows = max(1, lines.num_rows * most // max(1, lines.nbytes))
    for start in range(0, max(1, lines.num_rows), rows):
        yield lines.slice(start, rows)
