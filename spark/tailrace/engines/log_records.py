"""Return the query for a log's records up to an epoch, for any engine and any kind of log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import NamedTuple

from tailrace.engines.arrivals import arrival_filter, with_arrival
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import processing_times
from tailrace.lake.read.file_bounds import bounds
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.contracts import PANE, PRODUCTION
from tailrace.lake.schema.filters import Filter, at_most, before, equal, every, since
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.computation import Computation, NotKeptError
from tailrace.model.definition.definition import Definition, KindError, Windowless
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union
from tailrace.model.logs.log import Log
from tailrace.sql.records.stage_records import changes, current_records, productions, sent_until
from tailrace.sql.records.unions import union_records
from tailrace.sql.results.answers import latest_answers
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import Query, Relation, bracketed, quoted


def instant_term(micros: int) -> str:
    """Return an instant in microseconds as a SQL expression."""
    return f"TIMESTAMP_MICROS({micros}L)"


def rows_of_log(session: Session, log: Log, epoch: int, first: int | None = None, last: int | None = None) -> Relation:
    """Return the parenthesized query of a log's records up to an epoch, within a range of event times.

    The range is from `first` up to but not including `last`. Event times are in microseconds. If `first` or `last` is
    None, the range has no such bound. Raises `NotKeptError` if the records are output rows of a definition whose ledger
    does not store them.
    """
    conditions = _conditions(log, epoch, first, last)
    if not log.landed:
        rows = _relation(session, log, epoch, first, last)
    else:
        _, where = _table(session.lake, log, epoch, first, last)
        snapshot, held = _held(session.lake, log, where)
        # If the files' statistics prove a condition for all rows, the query omits the condition.
        conditions = [one for one in conditions if not one.holds(held.get(one.column))]
        rows = session.log(log, where, snapshot)
    wanted = f" WHERE {' AND '.join(one.text for one in conditions)}" if conditions else ""
    return Relation(f"(SELECT * FROM {rows}{wanted})")


class _Bounds(NamedTuple):
    """The condition that a column's values lie between `low` and `high`. A bound that is None does not apply."""

    column: str
    text: str
    low: int | None = None
    high: int | None = None

    def holds(self, values: tuple[int, int] | None) -> bool:
        """Return True if all values of a column meet the condition.

        `values` are the lowest and the highest value of the column. If `values` is None, the lowest and the highest
        value are unknown, and the result is False.
        """
        if values is None:
            return False
        return (self.low is None or values[0] >= self.low) and (self.high is None or values[1] <= self.high)


def _conditions(log: Log, epoch: int, first: int | None, last: int | None) -> list[_Bounds]:
    at = quoted(log.event_time)
    made = [_Bounds("_epoch", f"_epoch <= {epoch}L", high=epoch)]
    if first is not None:
        made.append(_Bounds(log.event_time, f"{at} >= {instant_term(first)}", low=first))
    if last is not None:
        made.append(_Bounds(log.event_time, f"{at} < {instant_term(last)}", high=last - 1))
    return made


def _held(lake: Lake, log: Log, where: Filter) -> tuple[int | None, dict[str, tuple[int, int] | None]]:
    """Return the current snapshot of a landed log, and the lowest and highest values of some of the log's columns.

    The columns are the epoch and the event time. The values come from the statistics of the log's files. If the filter
    `where` skips some of the files, no values are returned; the query then checks its conditions for each row.
    """
    table = lake.table(log.name)
    if (current := table.current_snapshot()) is None:
        return None, {}
    files = [task.file for task in table.scan(row_filter=where, snapshot_id=current.snapshot_id).plan_files()]
    if current.summary is None or current.summary.additional_properties.get("total-data-files") != str(len(files)):
        return current.snapshot_id, {}
    schema = table.schema()
    names = match_names(table, ["_epoch", log.event_time], {field.name for field in schema.fields})
    columns = {name: schema.find_field(live) for name, live in names.items() if live is not None}
    return current.snapshot_id, {name: bounds(files, column) for name, column in columns.items()}


def tables_of_log(
    lake: Lake, log: Log, epoch: int, first: int | None = None, last: int | None = None
) -> list[tuple[str, Filter]]:
    """List the tables that store a log's records. Each table comes with the filter that selects the files to read."""
    parts = (log,) if isinstance(log, Arrivals) else log.parts
    return [_table(lake, part, epoch, first, last) for part in parts]


def _table(lake: Lake, log: Log, epoch: int, first: int | None, last: int | None) -> tuple[str, Filter]:
    if isinstance(log, Productions):
        # If a run can recompute the definition, do not filter by epoch: a run may have corrected output rows after
        # `epoch`, and these corrections must be read, too.
        mended = log.of.recomputable
        terms = _within(log.event_time, first, last) if mended else [at_most("epoch", epoch)]
        return ledger_name(log.of.name), every(equal("kind", PRODUCTION), *terms)
    if isinstance(log, Arrivals):
        return log.of.name, arrival_filter(processing_times(lake, log.of.name), epoch, first, last)
    if isinstance(log, Panes):
        # Filter by the end of the window: the event time of an answer is the last microsecond of the answer's window.
        ends = _within("window_end", first, None if last is None else last + 1)
        return ledger_name(log.of.name), every(equal("kind", PANE), *ends)
    table = lake.table(log.name)
    # Filter by the current name of the event-time column, which may have been renamed.
    at = match_names(table, [log.event_time], {field.name for field in table.schema().fields})[log.event_time]
    return log.name, every(at_most("_epoch", epoch), *(() if at is None else _within(at, first, last)))


def _within(at: str, first: int | None, last: int | None) -> Iterator[Filter]:
    """Yield the filters that restrict a column of instants to a range. A bound that is None adds no filter."""
    if first is not None and first > BEGINNING:
        yield since(at, first)
    if last is not None and last <= END_OF_TIME:
        yield before(at, last)


def _relation(session: Session, log: Log, epoch: int, first: int | None, last: int | None) -> Relation:
    if isinstance(log, Union):
        read = {member: _relation(session, part, epoch, first, last) for member, part in log.members.items()}
        return bracketed(union_records(log, read))
    if isinstance(log, Arrivals):
        times = processing_times(session.lake, log.of.name)
        return with_arrival(session, log, session.log(log.of, arrival_filter(times, epoch, first, last)), times)
    table, where = _table(session.lake, log, epoch, first, last)
    if isinstance(log, Panes):
        panes = Relation(f"(SELECT * FROM {session.table(table, where)} WHERE {sent_until(epoch)})")
        return bracketed(
            current_records(log.of, Query(f"SELECT * FROM ({latest_answers(log.of, panes)}) WHERE NOT retraction"))
        )
    if isinstance(log, Productions):
        if not log.kept:
            raise NotKeptError(
                f"what {log.name} produces is not kept, and would be wanted for this: leave "
                'productions="weak" out of it, under another name'
            )
        return bracketed(produced_by(log.of, session.table(table, where), epoch))
    return session.log(log, where)


@singledispatch
def produced_by(definition: Definition, ledger: Relation, epoch: int) -> Query:
    """Return the query of a ledger's output rows up to an epoch, in the form in which other definitions read them.

    Retracted rows are excluded.
    """
    raise KindError("reading of productions", definition)


produced_by.register(Computation, lambda definition, ledger, epoch: productions(definition, ledger))
produced_by.register(Windowless, lambda definition, ledger, epoch: output_rows(definition).records(ledger, epoch))


def streamed_rows(session: Session, log: Log, epoch: int, first: int | None = None) -> Relation:
    """Return the parenthesized query of the records that the readers of a log received in a stream, up to an epoch.

    If `first` is given, only records with the event time `first` or later are returned. Corrections that a run has
    since made to a map's rows are excluded, because the stream's readers did not receive these corrections.
    """
    terms = [f"_epoch <= {epoch}L"] + ([] if first is None else [f"{quoted(log.event_time)} >= {instant_term(first)}"])
    return Relation(f"(SELECT * FROM {_streamed(session, log, epoch, first)} WHERE {' AND '.join(terms)})")


def _streamed(session: Session, log: Log, epoch: int, first: int | None) -> Relation:
    if isinstance(log, Union):
        return bracketed(
            union_records(log, {member: _streamed(session, part, epoch, first) for member, part in log.members.items()})
        )
    table, where = _table(session.lake, log, epoch, first, None)
    if isinstance(log, Panes):
        return bracketed(changes(log.of, session.table(table, where)))
    if isinstance(log, Productions):
        return bracketed(productions(log.of, session.table(table, where)))
    return session.log(log, where)
