"""Write the query of a log's records up to an epoch, for any engine and any kind of log."""

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
    """Write the query, in brackets, of a log's records up to an epoch, of event times from `first` to before `last`.

    Event times are microseconds, None for no bound. Raises `NotKeptError` for productions that are not kept.
    """
    conditions = _conditions(log, epoch, first, last)
    if not log.landed:
        rows = _relation(session, log, epoch, first, last)
    else:
        _, where = _table(session.lake, log, epoch, first, last)
        snapshot, held = _held(session.lake, log, where)
        # A condition that the files' statistics prove for every row is left out of the query.
        conditions = [one for one in conditions if not one.holds(held.get(one.column))]
        rows = session.log(log, where, snapshot)
    wanted = f" WHERE {' AND '.join(one.text for one in conditions)}" if conditions else ""
    return Relation(f"(SELECT * FROM {rows}{wanted})")


class _Bounds(NamedTuple):
    """The condition that a column lies between two bounds; None for no bound."""

    column: str
    text: str
    low: int | None = None
    high: int | None = None

    def holds(self, values: tuple[int, int] | None) -> bool:
        """Tell whether it holds for all values of a column, by the lowest and the highest; None where not known."""
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
    """Return the snapshot of a landed log, and the lowest and highest value of its columns in all files.

    There are no values where a filter skips files: the conditions then have to stay in the query.
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
    """List the tables that have a log's records, each with the filter of the files to read."""
    parts = (log,) if isinstance(log, Arrivals) else log.parts
    return [_table(lake, part, epoch, first, last) for part in parts]


def _table(lake: Lake, log: Log, epoch: int, first: int | None, last: int | None) -> tuple[str, Filter]:
    if isinstance(log, Productions):
        # Productions that a run has corrected since count as well, whichever epoch of the log the run read.
        mended = log.of.recomputable
        terms = _within(log.event_time, first, last) if mended else [at_most("epoch", epoch)]
        return ledger_name(log.of.name), every(equal("kind", PRODUCTION), *terms)
    if isinstance(log, Arrivals):
        return log.of.name, arrival_filter(processing_times(lake, log.of.name), epoch, first, last)
    if isinstance(log, Panes):
        # The event time of an answer is the last microsecond of its window.
        ends = _within("window_end", first, None if last is None else last + 1)
        return ledger_name(log.of.name), every(equal("kind", PANE), *ends)
    table = lake.table(log.name)
    # A filter needs the present name of a renamed column.
    at = match_names(table, [log.event_time], {field.name for field in table.schema().fields})[log.event_time]
    return log.name, every(at_most("_epoch", epoch), *(() if at is None else _within(at, first, last)))


def _within(at: str, first: int | None, last: int | None) -> Iterator[Filter]:
    """Yield the filters that a column of instants lies within a range; a side without a bound gives no filter."""
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
    """Write the query of a ledger's productions up to an epoch that are not retracted, as its readers see them."""
    raise KindError("reading of productions", definition)


produced_by.register(Computation, lambda definition, ledger, epoch: productions(definition, ledger))
produced_by.register(Windowless, lambda definition, ledger, epoch: output_rows(definition).records(ledger, epoch))


def streamed_rows(session: Session, log: Log, epoch: int, first: int | None = None) -> Relation:
    """Write the query, in brackets, of a log's records up to an epoch as the stream read them, from an event time on.

    Rows of a map that a run has corrected since are as they were: the stream's readers have not seen the corrections.
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
