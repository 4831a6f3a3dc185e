"""Bound the memory of an epoch's records while they are read: it is measured, as bytes on disk say little of it.

A Parquet file of some kilobytes may hold millions of equal rows, and lines may be compressed a thousandfold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.model.base.errors import TailraceError

SLICE = 8 * 2**20
"""The bytes of text that are read at once: parsing takes fifteen times as much beside."""

COLUMNS = 4
"""The factor by which more bytes of decoded columns are read at once, for they take twice as much beside."""


class TooLargeError(TailraceError, MemoryError):
    """An epoch's records are more than may be in this process: Spark has to read them."""


@dataclass
class Room:
    """The bytes of memory that an epoch's records may take; None: however many they are.

    `files` has the bytes of its files by their names. From the part that was read, the rest is foretold, so that little
    is read in vain.
    """

    most: int | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    taken: int = 0
    _read: int = 0

    @classmethod
    def of(cls, most: int | None, files: Sequence[str], sized: Callable[[], Sequence[int]]) -> Room:
        """Make the room for an epoch's files; their sizes are looked up where there is a bound."""
        return cls() if most is None else cls(most, dict(zip(files, sized(), strict=True)))

    @property
    def slice(self) -> int:
        """The bytes of text that are read at once."""
        return SLICE if self.most is None else min(SLICE, max(2**20, self.most // 16))

    def take(self, records: int, of_files: int = 0) -> None:
        """Enter the bytes of records that were read, of so many bytes of files. Raises `TooLargeError`."""
        self.taken += records
        self._read += of_files
        if self.most is None or self.taken <= self.most // 8:
            return
        rest = max(0, sum(self.files.values()) - self._read)
        self.check(rest * self.taken // self._read if self._read else 0)

    def check(self, more: int) -> None:
        """See whether so many bytes of records more would fit. Raises `TooLargeError`."""
        if self.most is not None and (all := self.taken + more) > self.most:
            raise TooLargeError(f"an epoch's records take some {all:,} bytes; here they may take {self.most:,}")
