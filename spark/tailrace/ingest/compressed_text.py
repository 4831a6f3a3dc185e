"""Read the text of a file in parts; the extension of the file's name shows how the file is compressed.

A small compressed file may contain a huge number of lines, or a line that does not fit in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

import pyarrow as pa

AT_ONCE = 4 * 2**20
"""The number of bytes of text that are scanned in one step."""

PROBE = 2**19
"""The number of bytes that are searched for a line end in one step, backwards from the end of a range."""

_ARROW = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
_EXPANSION = {"gz": 1_032, "deflate": 1_032, "bz2": 1_200_000, "zst": 40_000, "snappy": 22, "lz4": 256}
"""The maximum number of bytes of text per byte of a compressed file, for each extension of a file's name."""


HADOOPS = "lz4"
"""The extension of the compressed files that only Hadoop can decompress."""


class Text(Protocol):
    """A reader that returns a text in parts."""

    def read(self, size: int) -> bytes: ...


class _KeptOpen:
    """An open file that a stream of Arrow reads, but does not close when the stream is deleted."""

    closed = False

    def __init__(self, file: Any) -> None:
        self.read = file.read

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        """Leave the file open."""


class _Snappy:
    """A reader for the text of a file that Hadoop has compressed with Snappy.

    Such a file has blocks. A block begins with the length of its text, and has compressed parts, each of which begins
    with its compressed length; lengths are numbers of four bytes.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._rest, self._left = file, 0, b""

    def read(self, size: int) -> bytes:
        while not self._left:
            if self._rest <= 0:
                length = bytes(self._file.read(4))
                if not length:
                    return b""
                self._rest = int.from_bytes(length, "big")
                if len(length) < 4 or self._rest > _LARGEST_BLOCK:
                    raise OSError("a block's length is damaged")
                continue
            packed = bytes(self._file.read(self._number()))
            text, uncompressed = b"", _varint(packed)
            if uncompressed <= self._rest:
                text = pa.Codec("snappy").decompress(packed, decompressed_size=uncompressed, asbytes=True)
            if not text:
                raise OSError("a block is damaged")
            self._rest -= len(text)
            self._left = text
        part, self._left = self._left[:size], self._left[size:]
        return part

    def _number(self) -> int:
        length = bytes(self._file.read(4))
        if len(length) < 4:
            raise OSError("the file is cut off")
        return min(int.from_bytes(length, "big"), _LARGEST_BLOCK)


def _varint(packed: bytes) -> int:
    """Return the length of the text of a part that is compressed with Snappy, with which the part begins."""
    number = 0
    for place, one in enumerate(packed[:5]):
        number |= (one & 127) << (7 * place)
        if one < 128:
            return number
    raise OSError("a part's length is damaged")


_LARGEST_BLOCK = 64 * 2**20
"""The maximum length of a block in bytes; Hadoop's blocks have 256 kB."""


class _Deflated:
    """A reader for the text of a file in zlib's format."""

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
            if not given and not text:
                raise OSError("the file is cut off")
            if text:
                return text
        return b""


_OWN: Mapping[str, Callable[[Any], Text]] = {"deflate": _Deflated, "snappy": _Snappy}


def compression(path: str) -> str:
    """Return the extension of a file's name if it denotes a compression; otherwise, return an empty string.

    >>> compression("a.json.gz"), compression("a.json")
    ('gz', '')
    """
    last = path.rpartition(".")[2]
    return last if last in _EXPANSION else ""


def maximum_text_size(path: str, size: int) -> int:
    """Return the maximum number of bytes of text that a file of `size` bytes can contain.

    >>> maximum_text_size("a.json", 10), maximum_text_size("a.csv.gz", 10)
    (10, 10320)
    """
    return size * _EXPANSION.get(compression(path), 1)


def open_text(path: str, file: Any) -> Text | None:
    """Return a reader for the text of an open file, or None if only Hadoop can decompress the file.

    If the file is damaged, reading from the reader raises `OSError` or one of Arrow's errors.
    """
    codec = compression(path)
    if codec in _ARROW:
        opened: Text = pa.CompressedInputStream(_KeptOpen(file), _ARROW[codec])
        return opened
    if codec in _OWN:
        return _OWN[codec](file)
    return None if codec else cast(Text, file)


def lines_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a text, which is given in parts, without their line ends."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    if rest:
        yield rest


def read_through(path: str, file: Any) -> None:
    """Read the whole text of an open file; raises `OSError` or one of Arrow's errors if the file is damaged."""
    text = open_text(path, file)
    while text is not None and text.read(AT_ONCE):
        pass


def text_and_lines(path: str, file: Any, size: int, enough: int) -> tuple[int, int]:
    """Count the bytes and line ends of a file's text; stop after `enough` bytes, or where the file is damaged.

    If only Hadoop can decompress the file, return the maximum possible counts for a file of this size.
    """
    text, bytes, lines = open_text(path, file), 0, 0
    if text is None:
        return maximum_text_size(path, size), maximum_text_size(path, size) // 2
    for part in _parts(text):
        bytes += len(part)
        lines += part.count(b"\n")
        if bytes > enough:
            break
    return bytes, lines


def has_line_over(path: str, file: Any, size: int, most: int) -> bool:
    """Return True if a file's text has a line of more than `most` bytes; `most` must be larger than `AT_ONCE`.

    If only Hadoop can decompress the file, the file is not scanned, and the result is False.
    """
    if maximum_text_size(path, size) <= most or (text := open_text(path, file)) is None:
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
    """Return True if an uncompressed file has a line of more than `most` bytes; skip text that need not be searched."""
    ended = 0
    while size - ended > most:
        # A line of at most `most` bytes ends within the next `most` bytes. These bytes are searched backwards for a
        # line end, so most of the text is skipped.
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
        # The damage is reported later, when the whole file is read.
        return
