"""Find a stage's current rows and the event time of each row: answers of windows, or rows of maps and joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg.table import Table

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import standing_rows
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import LATE, PANE, PRODUCTION, DefinitionTables
from tailrace.lake.schema.filters import EVERYTHING, Filter, before, equal, every, since
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import PANE_TIME
from tailrace.serve.reading.event_time import TimeRange
from tailrace.serve.reading.lake_reader import Session

ALL = TimeRange(BEGINNING, END_OF_TIME)
"""The range that covers all of event time."""


class NoTablesError(LookupError):
    """Raised if no stream has created the tables of a stage yet."""


class RowRelation(NamedTuple):
    """A relation of a stage's rows: its name, and the SQL for the event time of a row in microseconds.

    `span` is the first and the last event time, if the files' statistics contain them. If `span` is None, the first and
    the last event time must be read from the rows.
    """

    name: str
    at: str
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class StageRows:
    """The current rows of a stage, in one table. `keys` and `values` are the columns that a page shows."""

    own: DefinitionTables
    table: Table
    keys: tuple[str, ...]
    values: tuple[str, ...]
    of_ledger: bool

    @classmethod
    def of(cls, lake: Lake, stage: Definition) -> StageRows:
        """Find the table of a stage's rows. Raises `NoTablesError` if the table does not exist yet."""
        own = tables_of(stage)
        answers = None if own.answers is None else lake.find(own.answers.table)
        table = lake.find(own.ledger.table) if answers is None else answers
        if table is None:
            raise NoTablesError(stage.name)
        there = set(table.schema().column_names)
        # A table of a different or older definition may lack columns, so show only columns that the table has.
        keys = tuple(name for name in own.keys if name in there)
        values = tuple(name for name in own.values if name in there and name not in own.keys)
        return cls(own, table, keys, values, answers is None)

    @property
    def windowed(self) -> bool:
        """True if the rows are answers of windows."""
        return self.own.answers is not None

    @property
    def timed(self) -> str:
        """The column that determines a row's event time."""
        return SPAN[1] if self.windowed else PANE_TIME

    @property
    def version(self) -> tuple[str, ...]:
        """The columns that identify a row's version."""
        there = self.table.schema().column_names
        return tuple(name for name in (*VERSION, "timing") if name in there)

    @contextmanager
    def open_rows(self, session: Session, range: TimeRange = ALL, columns: Sequence[str] = ()) -> Iterator[RowRelation]:
        """Yield a relation of the rows in a range. The relation is valid within the block.

        Files without a row in the range are skipped.
        """
        wanted = {*columns, self.timed, *(SPAN if self.windowed else ()), *self.version}
        if self.of_ledger:
            # To find the current answers of windows, read only the key and the version. To find the current rows of a
            # map or a join, read all columns.
            rows = self.own.runs is not None and not self.windowed
            wanted = {"*"} if rows else wanted | {*self.keys, "retraction", "kind"}
            wanted -= {"retraction"} - set(self.table.schema().column_names)
        with session.relation(self.table, self._files(range), sorted(wanted)) as name:
            span = None
            if range == ALL and not self.of_ledger:
                span = _span(session, self.table, EVERYTHING, self.timed)
            yield RowRelation(self._standing(name), instant_sql(self.timed), span)

    def _files(self, range: TimeRange) -> Filter:
        own = [] if not self.of_ledger else [equal("kind", PANE if self.windowed else PRODUCTION)]
        return filter_range(self.timed, range, *own)

    def _standing(self, name: str) -> str:
        if not self.of_ledger:
            return name
        if self.windowed:
            return self._latest_panes(name)
        if self.own.runs is None:
            # A definition without a table of runs never retracts rows, so all its rows are current.
            return f"(SELECT *, 1 AS generation FROM {name} WHERE kind = '{PRODUCTION}')"
        columns = [one.name for one in self.table.schema().fields]
        return f"({standing_rows(name, columns, self.table.properties, chr(34))})"

    def _latest_panes(self, name: str) -> str:
        by = ", ".join(map(name_of, (*self.keys, *SPAN)))
        # A retraction has the same version as the new pane that replaces the retracted answer (rule V1), so sort the
        # pane before the retraction.
        order = ", ".join([*(f"{one} DESC" for one in VERSION), "retraction"])
        place = f"row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS _place"
        panes = f"SELECT *, {place} FROM {name} WHERE kind = '{PANE}'"
        return f"(SELECT * FROM ({panes}) WHERE _place = 1 AND NOT retraction)"


def instant_sql(timed: str) -> str:
    """Return the SQL for a row's event time in microseconds. The event time of a window is its last instant (V5)."""
    moment = f"epoch_us({name_of(timed)})"
    return f"({moment} - 1)" if timed == SPAN[1] else moment


def filter_range(timed: str, range: TimeRange, *where: Filter) -> Filter:
    """Return a filter for the files that may contain rows of a range.

    `timed` is the column that determines the rows' event time.
    """
    terms = list(where)
    # The range contains the last instants of windows, but the column contains their ends, which are one microsecond
    # later.
    step = int(timed == SPAN[1])
    if range.first > BEGINNING:
        terms.append(since(timed, range.first + step))
    if range.last < END_OF_TIME:
        terms.append(before(timed, range.last + step))
    return every(*terms) if terms else EVERYTHING


@contextmanager
def late_rows(session: Session, name: str, *, windowed: bool) -> Iterator[RowRelation | None]:
    """Yield a relation of the records that were too late for a definition.

    Yields None if the ledger does not exist or has no column for the event time.
    """
    ledger = session.lake.find(ledger_name(name))
    timed = SPAN[1] if windowed else PANE_TIME
    if ledger is None or timed not in ledger.schema().column_names:
        yield None
        return
    with session.relation(ledger, equal("kind", LATE), sorted({"kind", "epoch", timed})) as rows:
        span = _span(session, ledger, equal("kind", LATE), timed)
        yield RowRelation(f"(SELECT * FROM {rows} WHERE kind = '{LATE}')", instant_sql(timed), span)


def _span(session: Session, table: Table, where: Filter, timed: str) -> tuple[int, int] | None:
    found, less = session.bounds(table, where, timed), int(timed == SPAN[1])
    return None if found is None else (found[0] - less, found[1] - less)
