"""Read lines of text that may be compressed, as the file's name says, a part at a time.

A small file may hold any number of lines, or one that fits no memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol, cast

import pyarrow as pa

AT_ONCE = 4 * 2**20
"""The bytes of text that are looked at together."""

PROBE = 2**19
"""The bytes in which the end of a line is looked for first."""

_ARROW = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
_EXPANSION = {"gz": 1_032, "deflate": 1_032, "bz2": 1_200_000, "zst": 40_000, "snappy": 22, "lz4": 256}
"""By endings, the bytes of text that a byte of a compressed file can be at most."""


class Text(Protocol):
    """A text that is read a part at a time."""

    def read(self, size: int) -> bytes: ...


class _Deflated:
    """The text of a file of zlib's format."""

    def __init__(self, file: Any) -> None:
        self._file, self._left, self._inflate = file, b"", zlib.decompressobj()

    def read(self, size: int) -> bytes:
        while not self._inflate.eof:
            given = self._left or self._file.read(1 << 16)
            try:
                text = self._inflate.decompress(given, size)
            except zlib.error as error:
                raise OSError(str(error)) from error
            self._left = self._inflate.unconsumed_tail
            if text or not given:
                return text
        return b""


def ending(path: str) -> str:
    """Return the ending of a file's name that says how it is compressed; empty where it is not.

    >>> ending("a.json.gz"), ending("a.json")
    ('gz', '')
    """
    last = path.rpartition(".")[2]
    return last if last in _EXPANSION else ""


def at_most(path: str, size: int) -> int:
    """Return the bytes of text that a file of a size has at most.

    >>> at_most("a.json", 10), at_most("a.csv.gz", 10)
    (10, 10320)
    """
    return size * _EXPANSION.get(ending(path), 1)


def text_of(path: str, file: Any) -> Text | None:
    """Open the text of an open file; None where it is compressed in one of Hadoop's own formats.

    Reading raises OSError or an error of Arrow's where the file is damaged.
    """
    codec = ending(path)
    if codec in _ARROW:
        opened: Text = pa.CompressedInputStream(file, _ARROW[codec])
        return opened
    if codec == "deflate":
        return _Deflated(file)
    return None if codec else cast(Text, file)


def text_and_lines(path: str, file: Any, size: int, enough: int) -> tuple[int, int]:
    """Count the bytes and the ends of lines of a file's text, up to `enough` bytes; where it is damaged, up to there.

    Of formats of Hadoop's own, the largest numbers that there can be.
    """
    text, bytes, lines = text_of(path, file), 0, 0
    if text is None:
        return at_most(path, size), at_most(path, size) // 2
    for part in _parts(text):
        bytes += len(part)
        lines += part.count(b"\n")
        if bytes > enough:
            break
    return bytes, lines


def has_line_over(path: str, file: Any, size: int, most: int) -> bool:
    """Tell whether a file's text has a line of more than `most` bytes, which are more than `AT_ONCE`.

    Of formats of Hadoop's own nothing is known.
    """
    if at_most(path, size) <= most or (text := text_of(path, file)) is None:
        return False
    if text is file:
        return _spans(file, size, most)
    since = 0
    for part in _parts(text):
        ends = part.find(b"\n")
        if since + (ends if ends >= 0 else len(part)) > most:
            return True
        since = since + len(part) if ends < 0 else len(part) - part.rfind(b"\n") - 1
    return since > most


def _spans(file: Any, size: int, most: int) -> bool:
    """Tell whether a line of a file that is not compressed is over `most` bytes, of most of which nothing is read."""
    ended = 0
    while size - ended > most:
        # Somewhere in the next `most` bytes a line has to end: looked for from their end on.
        until = ended + most
        while until > ended:
            begins = max(ended, until - PROBE)
            file.seek(begins)
            if (at := bytes(file.read(until - begins)).rfind(b"\n")) >= 0:
                until = begins + at + 1
                break
            until = begins
        if until <= ended:
            return True
        ended = until
    return False


def _parts(text: Text) -> Iterator[bytes]:
    try:
        while part := text.read(AT_ONCE):
            yield part
    except (OSError, EOFError, pa.ArrowException):
        # Whoever reads the file as a whole says what is wrong with it.
        return
