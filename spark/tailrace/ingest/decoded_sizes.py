"""Estimate the memory that an epoch's records will take once Spark has read them into this process, before it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tailrace.ingest.column_slices import decoded_bytes
from tailrace.ingest.compressed_text import at_most, text_and_lines
from tailrace.ingest.plain_columns import row_bytes
from tailrace.ingest.room import Room
from tailrace.ingest.sources import Format, file_system
from tailrace.model.logs.log import Log

_A_LINE = 300
"""The bytes that a record of a line takes besides its text, with its place, and a reason where it is rejected."""

_A_BYTE = 2
"""The bytes that a byte of a line takes: in its columns or as the bytes of a rejected record, and on the way."""


def check_size(log: Log, format: Format, paths: Sequence[str], room: Room) -> None:
    """See whether the records of files fit the room once Spark has read them. Raises `TooLargeError`.

    Nothing is read of files that fit whatever they hold. What cannot be read is passed over: Spark says why.
    """
    if room.most is None:
        return
    fits = format != "parquet" and sum(at_most(path, room.files[path]) for path in paths) * _WORST <= room.most
    for path in () if fits else paths:
        try:
            files, name = file_system(path)
            with files.open_input_file(name) as file:
                room.take(_of_columns(log, path, file) if format == "parquet" else _of_text(path, file, room))
        except (OSError, ValueError, pa.ArrowException):
            continue


_WORST = _A_BYTE + _A_LINE // 2
"""The bytes that a byte of text may take: a line has two at least that is a record."""


def _of_text(path: str, file: Any, room: Room) -> int:
    assert room.most is not None
    text, lines = text_and_lines(path, file, int(file.size()), room.most // _A_BYTE)
    return _A_BYTE * text + (_A_LINE + len(path)) * lines


def _of_columns(log: Log, path: str, file: Any) -> int:
    opened = pq.ParquetFile(file)
    # Where columns are not as declared, each record is rejected with all that it has.
    return decoded_bytes(file, opened, opened.schema_arrow.names, row_bytes(log, path) + _A_LINE)


class MessageSizes:
    """The size of a topic's messages: known from the last epochs, and looked at where these leave it open.

    Offsets say how many messages an epoch has, and nothing says how large they are. So a stream looks at its first
    epoch, and at one that would not fit if its messages were a few times larger than the ones before.
    """

    def __init__(self) -> None:
        self._mean: int | None = None

    def check(self, batch: DataFrame, messages: int, room: Room) -> None:
        """See whether the records of a micro-batch fit the room. Raises `TooLargeError`."""
        if room.most is None or not messages:
            return
        if self._mean is not None and messages * self._mean * _GROWTH <= room.most:
            return
        (row,) = batch.selectExpr("SUM(OCTET_LENGTH(value)) AS bytes").collect()
        room.check(_A_BYTE * (row["bytes"] or 0) + _A_LINE * messages)

    def learn(self, records: pa.Table) -> None:
        """Take note of the records that were read."""
        if records.num_rows:
            self._mean = records.nbytes // records.num_rows + 1


_GROWTH = 8
"""The factor by which messages may be larger than the ones of the epoch before, without a look."""
