"""Estimate, before Spark reads an epoch's records into this process, how much memory they will take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tailrace.ingest.column_slices import decoded_bytes
from tailrace.ingest.compressed_text import maximum_text_size, text_and_lines
from tailrace.ingest.plain_columns import row_bytes
from tailrace.ingest.room import Room
from tailrace.ingest.sources import Format, file_system
from tailrace.model.logs.log import Log

_A_LINE = 300
"""The bytes that a record takes besides its text: its place, and the reason if it is rejected."""

_A_BYTE = 2
"""The bytes of memory for each byte of a line: in its columns or as a rejected record's bytes, and in transit."""


def check_size(log: Log, format: Format, paths: Sequence[str], room: Room) -> None:
    """Check that the records of files will fit the room once Spark has read them. Raises `TooLargeError`.

    Files whose maximum size fits are not read. Unreadable files are skipped: Spark reports them.
    """
    if room.limit is None:
        return
    fits = (
        format != "parquet" and sum(maximum_text_size(path, room.files[path]) for path in paths) * _WORST <= room.limit
    )
    for path in () if fits else paths:
        try:
            files, name = file_system(path)
            with files.open_input_file(name) as file:
                room.take(_of_columns(log, path, file) if format == "parquet" else _of_text(path, file, room))
        except (OSError, ValueError, pa.ArrowException):
            continue


_WORST = _A_BYTE + _A_LINE // 2
"""The maximum bytes of memory for each byte of text: a record's line has at least two bytes."""


def _of_text(path: str, file: Any, room: Room) -> int:
    assert room.limit is not None
    text, lines = text_and_lines(path, file, int(file.size()), room.limit // _A_BYTE)
    return _A_BYTE * text + (_A_LINE + len(path)) * lines


def _of_columns(log: Log, path: str, file: Any) -> int:
    opened = pq.ParquetFile(file)
    # If the columns are not as declared, each record is rejected with all its columns, so all of them count.
    return decoded_bytes(file, opened, opened.schema_arrow.names, row_bytes(log, path) + _A_LINE)


class MessageSizes:
    """The size of a topic's messages, estimated from the epochs before, and measured where the estimate is not enough.

    Offsets tell how many messages an epoch has, but nothing tells how large they are. So a stream measures its first
    epoch, and each epoch that would not fit if its messages were a few times larger than the previous ones.
    """

    def __init__(self) -> None:
        self._mean: int | None = None

    def check(self, batch: DataFrame, messages: int, room: Room) -> None:
        """Check that the records of a micro-batch fit the room. Raises `TooLargeError`."""
        if room.limit is None or not messages:
            return
        if self._mean is not None and messages * self._mean * _GROWTH <= room.limit:
            return
        (row,) = batch.selectExpr("SUM(OCTET_LENGTH(value)) AS bytes").collect()
        room.check(_A_BYTE * (row["bytes"] or 0) + _A_LINE * messages)

    def learn(self, records: pa.Table) -> None:
        """Update the estimate by the records that were read."""
        if records.num_rows:
            self._mean = records.nbytes // records.num_rows + 1


_GROWTH = 8
"""Messages may be this many times larger than the previous epoch's before they are measured again."""
