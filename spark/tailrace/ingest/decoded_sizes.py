"""Estimate how much memory an epoch's records will take, before Spark reads the records into this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.ingest.compressed_text import maximum_text_size, text_and_lines
from tailrace.ingest.room import Room
from tailrace.ingest.sources import file_system

_A_LINE = 300
"""The number of bytes of memory that a record takes, not counting its text.

The bytes are for the record's position and, if the record is rejected, for the reason of the rejection.
"""

_A_BYTE = 2
"""The number of bytes of memory that each byte of a line takes.

One byte is for the column values or the bytes of a rejected record, and one byte is for the transfer to this process.
"""


def check_size(paths: Sequence[str], room: Room) -> None:
    """Check that the records of files of text will fit in this process's memory (`room`) after Spark has read them.

    Raises `TooLargeError` if the records will not fit. If even the maximum size of the files' text fits, the files are
    not read. Unreadable files are skipped, because Spark reports them later.
    """
    if room.limit is None:
        return
    fits = sum(maximum_text_size(path, room.files[path]) for path in paths) * _WORST <= room.limit
    for path in () if fits else paths:
        try:
            files, name = file_system(path)
            with files.open_input_file(name) as file:
                room.take(_of_text(path, file, room))
        except (OSError, ValueError, pa.ArrowException):
            continue


_WORST = _A_BYTE + _A_LINE // 2
"""The maximum number of bytes of memory that each byte of text takes.

The line of a record is assumed to have at least two bytes, so at most half of `_A_LINE` is added for each byte.
"""


def _of_text(path: str, file: Any, room: Room) -> int:
    assert room.limit is not None
    text, lines = text_and_lines(path, file, int(file.size()), room.limit // _A_BYTE)
    return _A_BYTE * text + (_A_LINE + len(path)) * lines


class MessageSizes:
    """The size of a topic's messages, which is estimated from the preceding epoch, or measured if necessary.

    Offsets show how many messages an epoch has, but not how large the messages are. So the messages of a stream's first
    epoch are measured. The estimate for a later epoch assumes that its messages are `_GROWTH` times as large as the
    preceding epoch's messages were on average. If messages of this size would not fit in memory, the later epoch's
    messages are measured, too.
    """

    def __init__(self) -> None:
        self._mean: int | None = None

    def check(self, batch: DataFrame, messages: int, room: Room) -> None:
        """Check that the records of a micro-batch will fit in the memory of this process (`room`).

        Raises `TooLargeError` if the records will not fit.
        """
        if room.limit is None or not messages:
            return
        if self._mean is not None and messages * self._mean * _GROWTH <= room.limit:
            return
        (row,) = batch.selectExpr("SUM(OCTET_LENGTH(value)) AS bytes").collect()
        room.check(_A_BYTE * (row["bytes"] or 0) + _A_LINE * messages)

    def learn(self, records: pa.Table) -> None:
        """Update the estimate from the records that were read."""
        if records.num_rows:
            self._mean = records.nbytes // records.num_rows + 1


_GROWTH = 8
"""The factor by which the mean message size may grow between two epochs without a new measurement."""
