"""Limit the memory that the records of an epoch take while they are read.

The memory is measured during reading, because it cannot be estimated from sizes on disk: a Parquet file of a few
kilobytes may contain millions of equal rows, and lines may be compressed by a factor of a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.model.base.errors import TailraceError

SLICE = 8 * 2**20
"""The number of bytes of text that are read and parsed at a time.

Parsing takes fifteen times as much memory as the text.
"""

COLUMNS = 4
"""The size of a slice of decoded columns, as a multiple of `SLICE`, the size of a slice of text.

The slice of decoded columns can be larger, because reading decoded columns takes only twice their size in memory.
"""


class TooLargeError(TailraceError, MemoryError):
    """The error for an epoch whose records are too large for the memory of this process, so that Spark must read
    them.
    """


@dataclass
class Room:
    """The memory that an epoch's records may take, in bytes; if `limit` is None, any size is allowed.

    `files` maps the name of each file of the epoch to the file's size. The memory for the remaining records is
    predicted from the part that was already read, so that reading stops early if the records will not fit.
    """

    limit: int | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    taken: int = 0
    _read: int = 0

    @classmethod
    def of(cls, most: int | None, files: Sequence[str], sized: Callable[[], Sequence[int]]) -> Room:
        """Return the room for an epoch's files. The sizes of the files are looked up only if there is a limit."""
        return cls() if most is None else cls(most, dict(zip(files, sized(), strict=True)))

    @property
    def slice(self) -> int:
        """The number of bytes of text to read at a time."""
        return SLICE if self.limit is None else min(SLICE, max(2**20, self.limit // 16))

    def take(self, records: int, of_files: int = 0) -> None:
        """Count `records` bytes of memory for records that were read from `of_files` bytes of files.

        Raises `TooLargeError` if the records of all files are expected to exceed the limit.
        """
        self.taken += records
        self._read += of_files
        if self.limit is None or self.taken <= self.limit // 8:
            return
        rest = max(0, sum(self.files.values()) - self._read)
        self.check(rest * self.taken // self._read if self._read else 0)

    def check(self, more: int) -> None:
        """Check that `more` bytes of records would fit in addition to the records that were already read.

        Raises `TooLargeError` if the records would not fit.
        """
        if self.limit is not None and (all := self.taken + more) > self.limit:
            raise TooLargeError(f"an epoch's records take some {all:,} bytes; here they may take {self.limit:,}")
