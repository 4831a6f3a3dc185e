"""Find out from lines of CSV how they are divided into cells: the options of a log's CSV files (`Csv`).

Each combination of options is tried, and the one is taken with which most lines have the same number of cells. The
lines are divided by the reader of the model, so what fits here fits in a stream.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from tailrace.infer.columns import epoch_unit
from tailrace.infer.observations import COMMA, Numbers, instant_forms
from tailrace.model.base.json_scalars import Number
from tailrace.model.logs.csv_options import RFC_4180, Csv
from tailrace.model.logs.csv_records import divide, line_of

LINES = 200
"""The maximum number of lines that are divided with each combination of options."""

_TYPED = 40
"""The maximum number of lines whose cells are looked into to compare combinations of options."""

_SURE_NULLS = ("NULL", "null", r"\N", "#N/A", "<null>", "(null)")
"""Texts that stand for a missing value in any column."""

_NULLS = (*_SURE_NULLS, "NA", "N/A", "n/a", "NaN", "nan", "None", "none", "nil", "-", "--", "?")
"""Texts that stand for a missing value in a column of numbers, instants or truth values."""

_QUOTES: tuple[tuple[str | None, str | None], ...] = (
    ('"', None), ('"', "\\"), ("'", None), ("'", "\\"), (None, None), (None, "\\"),
)  # fmt: skip

Row = Sequence[str | None]


def guessed(files: Sequence[Sequence[bytes]]) -> tuple[Csv, list[str]]:
    """Return the options of CSV files, given the first lines of each file, and remarks on what is not certain."""
    lines = [line for file in files for line in file]
    encoding = _encoding(lines)
    texts = list(_decoded(lines[:LINES], encoding))
    made = replace(_divided(texts), encoding=encoding)
    rows = [[row for text in _decoded(file[:LINES], encoding) if (row := divide(made, text))] for file in files]
    rows = [one for one in rows if one]
    made = replace(made, header=_has_header(rows))
    notes = []
    if encoding != "utf-8":
        notes.append(
            f"Some lines are not UTF-8, and are read as {encoding}. This is a guess: look at texts with accents."
        )
    if not made.header:
        notes.append("The files have no header: the columns are in their order, and have the names that they get here.")
    below = [row for one in rows for row in one[made.header :]]
    nulls = _nulls(below)
    return (replace(made, null=("", *nulls)) if nulls else made), notes


def _encoding(lines: Sequence[bytes]) -> str:
    """Return the encoding of lines: UTF-8, unless most lines with other characters than ASCII are not UTF-8."""
    high = [line for line in lines if not line.isascii()]
    bad = [line for line in high if not _is_in(line, "utf-8")]
    if len(bad) * 2 <= len(high):
        return "utf-8"
    return "cp1252" if all(_is_in(line, "cp1252") for line in bad) else "latin-1"


def _is_in(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except ValueError:
        return False
    return True


def _decoded(lines: Sequence[bytes], encoding: str) -> Iterator[str]:
    return (line_of(line.decode(encoding)) for line in lines if _is_in(line, encoding))


def _divided(texts: Sequence[str]) -> Csv:
    """Return the options with which most lines have the same number of cells, the simplest ones if there are several.

    A line in which cells are still in quotes does not count. Between delimiters with which equally many lines fit, the
    one wins with which the larger share of the cells are numbers, instants or truth values.
    """
    best, made = (0, 0.0, 0), RFC_4180
    for delimiter in _DELIMITERS:
        for quote, escape in _QUOTES:
            csv = Csv(delimiter=delimiter, quote=quote, escape=escape, null=())
            rows = [row for text in texts if (row := divide(csv, text)) and not any(map(_is_enclosed, row))]
            counts = Counter(len(row) for row in rows if len(row) > 1)
            if not counts:
                continue
            cells, fit = counts.most_common(1)[0]
            if fit < best[0]:
                continue
            some = [cell for row in rows[:_TYPED] if len(row) == cells for cell in row]
            typed = sum(_kind(cell or "") != "text" for cell in some) / max(1, len(some))
            if (score := (fit, round(typed, 6), cells)) > best:
                best, made = score, replace(csv, null="")
    return made


def _is_enclosed(cell: str | None) -> bool:
    return cell is not None and len(cell) > 1 and cell[0] == cell[-1] and cell[0] in "\"'"


def _has_header(files: Sequence[Sequence[Row]]) -> bool:
    """Return True if the first line of each file has the names of columns.

    It has, if the cells below are numbers, instants or truth values in more columns than the cell of the first line is.
    """
    other = same = 0
    for place in range(len(files[0][0]) if files else 0):
        for rows in files:
            below = {_kind(cell) for row in rows[1:] if (cell := _cell(row, place)) and cell not in _NULLS}
            first = _cell(rows[0], place)
            if len(below) == 1 and "text" not in below and first:
                other, same = other + (_kind(first) not in below), same + (_kind(first) in below)
    if other or same:
        return other >= same
    return not any(_kind(cell or "") in ("number", "instant") for rows in files[:1] for cell in rows[0])


def _cell(row: Row, place: int) -> str:
    return (row[place] or "").strip() if place < len(row) else ""


def _nulls(rows: Sequence[Row]) -> list[str]:
    """Return the texts of missing values, apart from the empty text."""
    found = list[str]()
    for place in range(max(map(len, rows), default=0)):
        cells = {cell for row in rows if place < len(row) and (cell := row[place])}
        typed = {_kind(cell.strip()) for cell in cells - set(_NULLS)}
        known = _NULLS if len(typed) == 1 and "text" not in typed else _SURE_NULLS
        found += [one for one in known if one in cells]
    return list(dict.fromkeys(found))


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return names for columns that have no header. A column of instants is named as one.

    >>> names_of([["7", "2026-01-01T00:00:00Z"], ["8", None]])
    ['column_1', 'time_2']
    """
    units, made = dict[int, str | None](), list[str]()
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    for place in range(width):
        kinds = {_kind(cell) for row in rows if (cell := _cell(row, place))}
        numbers = Numbers()
        texts = [_cell(row, place) for row in rows] if kinds == {"number"} else []
        for digits in texts:
            if digits and COMMA.fullmatch(digits) is None:
                numbers.add(digits.lstrip("+"))
        units[place] = "text" if kinds == {"instant"} else epoch_unit(numbers)
    certain = {place for place, unit in units.items() if unit not in (None, "seconds")}
    times = certain or {place for place, unit in units.items() if unit == "seconds"}
    for place in range(width):
        made.append(f"{'time' if place in times else 'column'}_{place + 1}")
    return made


@lru_cache(maxsize=20_000)
def _kind(cell: str) -> str:
    """Return the kind of a cell: "number", "instant", "boolean", "empty" or "text"."""
    cell = cell.strip()
    if not cell:
        return "empty"
    if _NUMERAL.fullmatch(cell) or COMMA.fullmatch(cell):
        return "number"
    if cell.lower() in ("true", "false"):
        return "boolean"
    return "instant" if _DIGIT.search(cell) and instant_forms(cell) else "text"


def cell_of(text: str | None) -> object:
    """Return the value of a cell as a record in JSON has it; a code such as 007 stays a text."""
    bare = "" if text is None else text.strip()
    if bare == "":
        return None
    if bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    return Number(bare.lstrip("+")) if _PLAIN.fullmatch(bare) else bare


_DELIMITERS = (",", ";", "\t", "|")
_NUMERAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_PLAIN = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_DIGIT = re.compile("[0-9]")
WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The beginnings of texts in which characters have two bytes or more; such texts are not read."""
