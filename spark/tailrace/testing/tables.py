"""Parse the text tables with which a test says the rows that it expects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.model.base.errors import Fault, TailraceError
from tailrace.testing.cells import CellReader

_TOKEN = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')
_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|\||[^|"]+|"')
_RULE = re.compile(r"[\s|:+]*-{2,}[\s|:+-]*")


class TableError(TailraceError, ValueError):
    """The error for a text that is not a table of the columns that there are; `faults` has all faults of the text."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        lines = [f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1)]
        super().__init__("\n".join(["the table of the test cannot be read:", *lines]))


@dataclass(frozen=True)
class Table:
    """The columns that a table names, and the values of its rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def parse_table(text: str, types: Mapping[str, str]) -> Table:
    """Parse a table, whose first line names columns; `types` has the columns that there are.

    Cells are separated by blanks, or by bars if the header has a bar. A text with blanks is in double quotes. Empty
    lines, lines of dashes, and what follows a `#` at the beginning of a line are skipped.

    >>> parse_table("city rides\\nParis 2\\n'Rome' null", {"city": "string", "rides": "bigint"}).rows
    (('Paris', 2), ("'Rome'", None))
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line and line[0] != "#" and not _RULE.fullmatch(line)]
    if not lines:
        expected = "a line with the names of columns"
        raise TableError([Fault("table", text, expected, f"name some of {', '.join(types)}; rows may be left out")])
    bars = "|" in lines[0][1]
    header = _cells(lines[0][1], bars)
    faults = list(_header_faults(header, types))
    if faults:
        raise TableError(faults)
    reader, rows = CellReader(), list[tuple[Any, ...]]()
    for number, line in lines[1:]:
        cells = _cells(line, bars)
        if len(cells) != len(header):
            expected = f"{len(header)} cells, one for each of {', '.join(header)}"
            remedy = 'write null for a missing value, "" for an empty text, and texts with blanks in quotes'
            faults.append(Fault(f"line {number}", line, expected, remedy))
            continue
        row = []
        for name, cell in zip(header, cells, strict=True):
            try:
                row.append(reader.read(cell, types[name]))
            except (ValueError, ArithmeticError, LookupError, TypeError):
                expected = f"a value of type {types[name]}"
                faults.append(
                    Fault(
                        f"line {number}, {name}",
                        cell,
                        expected,
                        _EXAMPLES.get(types[name], "write such a value, or null"),
                    )
                )
        rows.append(tuple(row))
    if faults:
        raise TableError(faults)
    return Table(tuple(header), tuple(rows))


_EXAMPLES = {
    "timestamp": "write for example 2026-03-01T09:00, or 09:00 after a cell with that day",
    "window": "write for example 2026-03-01T09:00/10:00, or beginning/end",
    "boolean": "write true, false or null",
    "double": "write for example 0.25, ~0.33 for a rounded number, NaN or null",
}


def _cells(line: str, bars: bool) -> list[str]:
    """Split a line into cells; a quote that does not end leaves the line whole, which is then reported."""
    if not bars:
        return [line] if '"' in _TOKEN.sub("", line) else _TOKEN.findall(line)
    cells = [""]
    for part in _PARTS.findall(line.removeprefix("|").removesuffix("|")):
        if part == "|":
            cells.append("")
        else:
            cells[-1] += part
    return [one.strip() for one in cells]


def _header_faults(header: Sequence[str], types: Mapping[str, str]) -> Iterable[Fault]:
    for name in dict.fromkeys(header):
        if name not in types:
            yield Fault("the header", name, f"one of {', '.join(types)}", "name the columns that the test is about")
        if header.count(name) > 1:
            yield Fault("the header", name, "each column once", "leave one out")
