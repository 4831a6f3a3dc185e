"""The rows that a definition gives, which compare with a table in a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from tailrace.model.base.errors import Fault, TailraceError
from tailrace.model.definition.pipeline import UNANSWERED
from tailrace.testing.cells import CellReader, cell, key_of
from tailrace.testing.differences import Difference, difference, laid_out
from tailrace.testing.tables import Table, TableError, parse_table


class RowsError(TailraceError, AssertionError):
    """The failure of a test: rows do not equal a table."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that compare with a table of texts by `==`.

    The table's first line names columns; only these columns are compared. The order of the rows counts only for
    `in_order`. `types` maps each column to its type, `shown` names the columns that are printed, `about` names those
    that say what a row is about, and `what` says in messages what the rows are.

    >>> types = {"city": "string", "rides": "bigint"}
    >>> rows = Rows(types, ({"city": "Paris", "rides": 2},), "answers", ("city", "rides"))
    >>> rows == "rides \\n 2", rows == "city | rides \\n Paris | 3"
    (True, False)
    """

    types: Mapping[str, str]
    rows: tuple[Mapping[str, Any], ...]
    what: str
    shown: tuple[str, ...]
    about: tuple[str, ...] = ()
    ordered: bool = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str | Rows):
            return NotImplemented
        return self.compared(other).same

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{self.what}: {len(self)} rows>"

    def text(self, *columns: str) -> str:
        """Return the rows as a table, with these columns or with the usual ones; a test can compare with this text."""
        names = columns or self.printed
        lines = [[cell(row.get(name), self.types[name]) for name in names] for row in self.rows]
        return "\n".join(laid_out([list(names), *lines]))

    @property
    def printed(self) -> tuple[str, ...]:
        """The columns that are printed."""
        return tuple(name for name in self.shown if name != UNANSWERED or any(map(_unanswered, self.rows)))

    @property
    def in_order(self) -> Self:
        """The same rows, which equal a table only if it has them in the same order."""
        return replace(self, ordered=True)

    def where(self, **values: Any) -> Self:
        """Return the rows with these values, written as in a table: `panes.where(country="DE", timing="late")`."""
        if unknown := [name for name in values if name not in self.types]:
            expected = f"one of {', '.join(self.types)}"
            raise TableError([Fault("where", name, expected, "name a column of the rows") for name in unknown])
        reader = CellReader()
        wanted = {
            name: reader.read(value, self.types[name]) if isinstance(value, str) else value
            for name, value in values.items()
        }
        kept = (row for row in self.rows if all(key_of(row.get(n)) == key_of(value) for n, value in wanted.items()))
        return replace(self, rows=tuple(kept))

    def check(self, other: str | Rows) -> None:
        """Raise `RowsError` with all that differs if the rows do not equal a table, or other rows."""
        __tracebackhide__ = True
        found = self.compared(other)
        if not found.same:
            said = "the table" if isinstance(other, str) else other.what
            lines = found.lines(f"in {said}", self.what)
            raise RowsError("\n".join([f"{self.what} != {said}", *lines]))

    def compared(self, other: str | Rows) -> Difference:
        """Compare with a table, or with other rows by the columns that are printed."""
        if isinstance(other, str):
            table = parse_table(other, self.types)
        else:
            both = (name for name in dict.fromkeys((*self.printed, *other.printed)) if name in self.types)
            names = tuple(name for name in both if name in other.types)
            table = Table(names, other.values(names))
        types = [self.types[name] for name in table.columns]
        return difference(table, self.values(table.columns), types, ordered=self.ordered, about=self.about)

    def values(self, columns: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
        """Return the values of these columns, row by row."""
        return tuple(tuple(row.get(name) for name in columns) for row in self.rows)


def _unanswered(row: Mapping[str, Any]) -> bool:
    return row.get(UNANSWERED) is not None
