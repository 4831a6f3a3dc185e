"""Find the records in a JSON file that has no line for each record: an array of objects, or objects one after another.

The beginning of a file shows how its records are arranged (`has_values`). A record begins with a bracket, and ends with
the bracket that closes it; brackets inside of texts do not count. Between two records, there may be white space, commas
and the brackets of the array. Any other text between two records is a record that is rejected, and so is a record whose
end is missing. The records before it are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.ingest.compressed_text import AT_ONCE, Text, lines_of

_SPACE = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"
_BETWEEN = _SPACE + b",]"
_SEPARATES = np.isin(np.arange(256), np.frombuffer(_BETWEEN, np.uint8))
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_ESCAPED = re.compile(rb"\\.", re.DOTALL)


def has_values(more: Callable[[], bytes], most: int) -> tuple[bool, bytes]:
    """Return True if a text has JSON values instead of lines, and the bytes of the text that were read to find out.

    `more` returns the next bytes of the text. A text has values if it begins with `[`, if its first object ends on a
    later line, or if another object follows on the first line. An object of more than `most` bytes is taken for a line.

    >>> parts = iter([b'{"a":', b"\\n 1}", b""])
    >>> has_values(lambda: next(parts), 100), has_values(lambda: b"", 100)
    ((True, b'{"a":\\n 1}'), (False, b''))
    """
    head, ended = b"", False
    while True:
        bare = head.lstrip(_SPACE).removeprefix(_MARK).lstrip(_SPACE)
        if bare and not bare.startswith(b"{") and (ended or not _MARK.startswith(bare)):
            return bare.startswith(b"["), head
        line, end, _ = bare.partition(b"\n")
        if end and (found := _first_object(line)) is not None:
            return _is_object(line[:found]) and line[found:].lstrip(_SPACE).startswith(b"{"), head
        if bare.startswith(b"{") and (end or ended):
            found = _first_object(bare)
            if found is not None:
                several = found > len(line) or bare[found:].lstrip(_SPACE).startswith(b"{")
                return several and _is_object(bare[:found]), head
        if ended or len(head) > most:
            return False, head
        part = more()
        ended, head = not part, head + part


def _first_object(text: bytes) -> int | None:
    """Return the position after the object with which a text begins, or None if the object does not end."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return None


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class ValueSplitter:
    """Divide a text, which is given in parts, into its JSON values.

    A value of more than `most` bytes is cut off after these bytes and one more, so that it is rejected as too large.

    >>> splitter = ValueSplitter(100)
    >>> splitter.split(b'[{"a": "}"}, {"b"').to_pylist(), splitter.split(b": [1]}] x", last=True).to_pylist()
    ([b'{"a": "}"}'], [b'{"b": [1]}', b'x'])
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = b""
        """The text from the beginning of the value whose end was not found yet."""
        self._depth, self._inside, self._escaped = 0, False, False
        self._begun, self._skips = False, False

    def split(self, data: bytes, *, last: bool = False) -> pa.BinaryArray:
        """Return the values that end in the next part of the text; with `last`, there is no further part."""
        if not self._begun:
            data = self._left + data
            bare = data.lstrip(_SPACE).removeprefix(_MARK).lstrip(_SPACE)
            if not bare or (len(bare) < len(_MARK) and not last):
                self._left = data[-len(_MARK) :] if not bare else data
                return pa.array([], pa.binary())
            self._begun, self._left, data = True, b"", bare.removeprefix(b"[")
        starts, ends = self._brackets(data)
        whole = self._left + data
        texts = np.frombuffer(whole, np.uint8)
        open_at = int(starts[-1]) if len(starts) > len(ends) else None
        found = self._junk(texts, starts, ends, open_at, last=last)
        begins, stops = (
            np.sort(np.concatenate([starts[: len(ends)], found[0]])),
            np.sort(np.concatenate([ends, found[1]])),
        )
        if self._skips and len(ends):
            # The first value is the rest of a value that was cut off.
            self._skips, begins, stops = False, begins[1:], stops[1:]
        made = _slices(whole, begins, np.minimum(stops, begins + self._most + 1))
        until = int(max([0, *ends[-1:], *found[1][-1:]])) if open_at is None else open_at
        self._left = whole[until:].lstrip(_BETWEEN) if open_at is None else whole[until:]
        if self._skips:
            self._left = b"" if open_at is None else self._left[:1]
        elif len(self._left) > self._most or (last and self._left):
            made = pa.concat_arrays([made, pa.array([self._left[: self._most + 1]], pa.binary())])
            self._skips = open_at is not None and not last
            self._left = self._left[:1] if self._skips else b""
        return made

    def _brackets(self, data: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions at which values begin and end, in the text that is left and the next part together."""
        text = b"_" + data[1:] if self._escaped and data else data
        text = _ESCAPED.sub(b"__", text) if b"\\" in text else text
        self._escaped = text.endswith(b"\\") or (self._escaped and not data)
        letters = np.frombuffer(text, np.uint8)
        inside = (np.cumsum(letters == ord('"'), dtype=np.int64) + self._inside) % 2 == 1
        opens = ((letters == ord("{")) | (letters == ord("["))) & ~inside
        closes = ((letters == ord("}")) | (letters == ord("]"))) & ~inside
        at = np.flatnonzero(opens | closes)
        steps = np.where(opens[at], 1, -1)
        sums = self._depth + np.cumsum(steps)
        # A bracket that closes nothing does not count: the depth never falls below zero.
        depths = sums - np.minimum(0, np.minimum.accumulate(sums)) if len(sums) else sums
        before = np.concatenate([[self._depth], depths[:-1]]) if len(sums) else sums
        shift = len(self._left)
        starts = at[(steps == 1) & (before == 0)] + shift
        ends = at[(steps == -1) & (before == 1)] + shift + 1
        if self._depth:
            starts = np.concatenate([[0], starts])
        self._inside = bool(inside[-1]) if len(inside) else self._inside
        self._depth = int(depths[-1]) if len(depths) else self._depth
        return starts, ends

    def _junk(
        self, texts: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64],
        open_at: int | None, *, last: bool,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:  # fmt: skip
        """Return the positions at which texts that are no values begin and end."""
        edges = np.zeros(len(texts) + 1, np.int8)
        edges[starts] += 1
        edges[ends] -= 1
        odd = np.flatnonzero((np.cumsum(edges[:-1], dtype=np.int8) == 0) & ~_SEPARATES[texts])
        gaps = np.searchsorted(starts, odd)
        begins, stops = list[int](), list[int]()
        for gap in np.unique(gaps):
            if gap == len(starts) and open_at is None and not last:
                # The text may go on in the next part.
                continue
            of_gap = odd[gaps == gap]
            begins.append(int(of_gap[0]))
            stops.append(int(of_gap[-1]) + 1)
        return np.array(begins, np.int64), np.array(stops, np.int64)


def _slices(whole: bytes, begins: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Return slices of bytes as an array; the slices do not overlap."""
    if not len(begins):
        return pa.array([], pa.binary())
    offsets = np.stack([begins, stops], axis=1).ravel()
    every = pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(whole)]
    )
    return every.take(pa.array(np.arange(0, len(offsets) - 1, 2))).cast(pa.binary())


def json_texts(text: Text, most: int) -> Iterator[bytes]:
    """Yield the records of a JSON text that are not parsed yet: its values, or its lines."""
    values, head = has_values(partial(text.read, 1 << 16), most)
    parts = chain([head] if head else [], iter(partial(text.read, AT_ONCE), b""))
    if not values:
        yield from lines_of(parts)
        return
    splitter = ValueSplitter(most)
    for part in parts:
        yield from splitter.split(part).to_pylist()
    yield from splitter.split(b"", last=True).to_pylist()
