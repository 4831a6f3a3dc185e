"""Compute a file's checksum while the file is written, so that `audit --deep` can later verify the file.

The file need not be read again to compute the checksum.
"""

from __future__ import annotations

from typing import Any, cast
from zlib import crc32

import pyarrow as pa
from pyiceberg.io import InputFile, OutputFile, OutputStream

BUFFER = 1024 * 1024
"""The number of bytes that are buffered before they are added to the checksum and written."""


def checksum_text(number: int) -> str:
    """Return a CRC-32 checksum as hexadecimal text.

    >>> checksum_text(crc32(b"tail"))
    '7c37b45d'
    """
    return f"{number:08x}"


class SummedOutput(OutputFile):
    """An output file that passes its bytes on to another output file and computes the checksum of these bytes."""

    def __init__(self, output: OutputFile) -> None:
        super().__init__(output.location)
        self._output, self._sum = output, 0

    @property
    def checksum(self) -> str:
        """The CRC-32 checksum of the written bytes, in hexadecimal digits."""
        return checksum_text(self._sum)

    def add(self, some: Any) -> None:
        """Add bytes to the checksum."""
        self._sum = crc32(some, self._sum)

    def __len__(self) -> int:
        return len(self._output)

    def exists(self) -> bool:
        """Return True if the file exists."""
        return self._output.exists()

    def to_input_file(self) -> InputFile:
        """Return the written file, for reading."""
        return self._output.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        """Open the file for writing.

        The output is buffered, so that Python code is called once for each `BUFFER` bytes, and not for each page of a
        column.
        """
        summed = pa.PythonFile(_Summed(self, self._output.create(overwrite)), mode="w")
        return cast("OutputStream", pa.BufferedOutputStream(summed, BUFFER))


class _Summed:
    """An output stream that adds the written bytes to a checksum and passes them on to another stream."""

    def __init__(self, output: SummedOutput, stream: Any) -> None:
        self._output, self._stream = output, stream

    def write(self, some: bytes) -> int:
        self._output.add(some)
        self._stream.write(some)
        return len(some)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
