"""Compare the rows that a test expects with the rows that a definition gives, and show what differs."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from tailrace.testing.cells import Loose, cell, key_of
from tailrace.testing.tables import Table

Row = tuple[Any, ...]

MOST = 60
"""The maximum number of rows that a difference shows."""


@dataclass(frozen=True)
class Difference:
    """The rows that only the table has (`missing`), that only the definition gives (`extra`), and pairs.

    A pair has the table's row and the given row, which are about the same, but differ.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    equal: int
    missing: tuple[Row, ...]
    extra: tuple[Row, ...]
    pairs: tuple[tuple[Row, Row], ...]
    moved: bool = False

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.pairs or self.moved)

    def lines(self, expected: str = "in the table", given: str = "given") -> Iterator[str]:
        """Yield the lines that show the difference to a person."""
        counts = (
            (self.equal, "equal"), (len(self.pairs), "differing"), (len(self.missing), "missing"),
            (len(self.extra), "extra"),
        )  # fmt: skip
        yield ", ".join(f"{count} {word}" for count, word in counts if count) or "no rows"
        if self.moved:
            yield "the rows are the same, in another order"
            return
        yield f"- {expected}   + {given}"
        shown: list[tuple[str, Row, str]] = []
        for one, other in self.pairs:
            names = [n for n, a, b in zip(self.columns, one, other, strict=True) if not equal(a, b)]
            shown += [("-", one, ""), ("+", other, f"differs in {', '.join(names)}")]
        shown += [("-", row, "missing") for row in self.missing]
        shown += [("+", row, "extra") for row in self.extra]
        cells = [
            [mark, *(expected_cell(one, type) for one, type in zip(row, self.types, strict=True)), note]
            for mark, row, note in shown[:MOST]
        ]
        yield from laid_out([["", *self.columns, ""], *cells])
        if len(shown) > MOST:
            yield f"and {len(shown) - MOST:,} rows more"


def equal(expected: Any, given: Any) -> bool:
    """Return True if a cell of a table and a value are equal."""
    return expected.matches(given) if isinstance(expected, Loose) else key_of(expected) == key_of(given)


def expected_cell(value: Any, type: str) -> str:
    """Show a cell of a table."""
    return value.text if isinstance(value, Loose) else cell(value, type)


def laid_out(lines: Sequence[Sequence[str]]) -> list[str]:
    """Align cells below one another."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(one.ljust(w) for one, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def difference(
    table: Table, given: Sequence[Row], types: Sequence[str], *, ordered: bool = False, about: Collection[str] = ()
) -> Difference:
    """Find the difference between a table and the given rows, in their order if `ordered`.

    `about` names the columns that say what a row is about: only rows that agree in them are shown as a pair.
    """
    if ordered:
        found = _in_order(table, given, types, about)
        # What a person looks for first is whether the rows are there at all.
        any_order = difference(table, given, types, about=about)
        if not found.same and any_order.same:
            return Difference(table.columns, tuple(types), any_order.equal, (), (), (), moved=True)
        return found
    missing, extra, same = _unmatched(table, given)
    return _paired(table.columns, types, same, missing, extra, about)


def _unmatched(table: Table, given: Sequence[Row]) -> tuple[list[Row], list[Row], int]:
    """Return the rows that have no equal row on the other side, and the number of equal rows."""
    places: dict[Hashable, list[int]] = {}
    for place, row in enumerate(given):
        places.setdefault(key_of(row), []).append(place)
    left = dict(enumerate(given))
    missing, loose = list[Row](), list[Row]()
    for row in table.rows:
        if any(isinstance(one, Loose) for one in row):
            loose.append(row)
        elif found := places.get(key_of(row)):
            del left[found.pop(0)]
        else:
            missing.append(row)
    missing += _unmatched_loose(loose, left)
    return missing, list(left.values()), len(table.rows) - len(missing)


def _unmatched_loose(rows: Sequence[Row], left: dict[int, Row]) -> Iterator[Row]:
    """Yield the rows that none of the rows left equals, and remove the others' from those left."""
    by_exact: dict[tuple[int, ...], dict[Hashable, list[int]]] = {}
    for row in rows:
        exact = tuple(place for place, one in enumerate(row) if not isinstance(one, Loose))
        if exact not in by_exact:
            index = by_exact.setdefault(exact, {})
            for place, other in left.items():
                index.setdefault(key_of([other[n] for n in exact]), []).append(place)
        alike = by_exact[exact].get(key_of([row[n] for n in exact]), [])
        match = next((one for one in alike if one in left and all(map(equal, row, left[one]))), None)
        if match is None:
            yield row
        else:
            del left[match]


def _in_order(table: Table, given: Sequence[Row], types: Sequence[str], about: Collection[str]) -> Difference:
    if len(table.rows) == len(given) and all(all(map(equal, a, b)) for a, b in zip(table.rows, given, strict=True)):
        return Difference(table.columns, tuple(types), len(given), (), (), ())
    matcher = SequenceMatcher(None, list(map(key_of, table.rows)), list(map(key_of, given)), autojunk=False)
    missing, extra, same = list[Row](), list[Row](), 0
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            same += b - a
        else:
            missing += table.rows[a:b]
            extra += given[c:d]
    return _paired(table.columns, types, same, missing, extra, about)


def _paired(
    columns: tuple[str, ...], types: Sequence[str], same: int, missing: list[Row], extra: list[Row],
    about: Collection[str],
) -> Difference:  # fmt: skip
    """Pair missing with extra rows that are about the same, those first that agree in most columns."""
    places = [place for place, name in enumerate(columns) if name in about]
    pairs, alone, left = list[tuple[Row, Row]](), list[Row](), list(extra)
    for row in missing:
        same_thing = [one for one in left if all(equal(row[place], one[place]) for place in places)]
        best = max(same_thing, key=lambda other: sum(map(equal, row, other)), default=None)
        if best is None or not (places or 2 * sum(map(equal, row, best)) > len(columns)):
            alone.append(row)
        else:
            left.remove(best)
            pairs.append((row, best))
    return Difference(columns, tuple(types), same, tuple(alone), tuple(left), tuple(pairs))
