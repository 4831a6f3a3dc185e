"""Write SQL that computes the answers for complete input, and SQL that compares computed and current answers.

A backfill and an audit compute the answers for complete input. The audit then compares the current answers with the
computed answers. In this module, the bounds of all windows are in microseconds, including the windows of the current
answers.
"""

from __future__ import annotations

from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.combiners.own import OwnWindows
from tailrace.model.definition.pipeline import NET, Pipeline
from tailrace.model.step.transition import Transition
from tailrace.model.windows.panes import END_OF_WINDOW
from tailrace.model.windows.window_spans import window_at
from tailrace.model.windows.windows import Fixed, Windowing
from tailrace.sql.epoch.partials import finished_accumulators, window_accumulators
from tailrace.sql.query_shapes import NEWEST, first_of
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.results.compared_rows import ComparedRows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, Sql, all_of, bracketed, quoted


def batch_answers(pipeline: Pipeline, rows: Query, within: Condition = ALWAYS) -> Query:
    """Return the query for each window's answer, from a query for records with windows.

    The columns are the keys, the window, the results, the accumulator, and the number of records (`_arrived`). `within`
    is a condition on windows.
    """
    return _answers(pipeline, window_accumulators(pipeline, rows), within, ["arrived AS _arrived"])


def accumulators(pipeline: Pipeline, source: Relation, within: Condition = ALWAYS) -> Query:
    """Return the query for the accumulators that `results_of` reads, with their keys and windows.

    `source` is a relation of records after the steps, without windows.
    """
    items = join_items(key_names(pipeline), list(SPAN), [quoted(name) for name in pipeline.parts])
    return Query(f"SELECT {items} FROM ({finished_accumulators(pipeline, source)}) WHERE {within}")


def results_of(pipeline: Pipeline, rows: Relation, within: Condition = ALWAYS) -> Query:
    """Return the query for the answers, from a relation with the rows of `accumulators`.

    The answers do not include the number of records.
    """
    return _answers(pipeline, all_of(rows), within, [])


def _answers(pipeline: Pipeline, accumulators: Query, within: Condition, more: list[str]) -> Query:
    rules, parts = Transition(pipeline, Sql()), {name: quoted(name) for name in pipeline.parts}
    results, level = rules.results(parts), rules.levelled(parts)
    typed = [f"CAST({term} AS {pipeline.answer_columns[name]}) AS {quoted(name)}" for name, term in results.items()]
    items = join_items(
        key_names(pipeline), list(SPAN), typed, [f"{level[name]} AS {quoted(name)}" for name in parts], more
    )
    # A window whose records were all retracted has no answer, so it is left out.
    there = f"`{NET}` > 0 AND " if pipeline.log.signed else ""
    return Query(f"SELECT {items} FROM ({accumulators}) WHERE {there}{within}")


def current_answers(pipeline: Pipeline, table: Relation, within: Condition = ALWAYS) -> Query:
    """Return the query for a table's current answers and their versions, with windows in microseconds."""
    spans = [f"UNIX_MICROS({name}) AS {name}" for name in SPAN]
    items = join_items(key_names(pipeline), spans, [quoted(name) for name in pipeline.answer_columns], list(VERSION))
    return Query(f"SELECT * FROM (SELECT {items} FROM {table}) WHERE {within}")


def answer_rows(pipeline: Pipeline) -> ComparedRows:
    """Return the rules for comparing answers (`ComparedRows`): an answer is identified by its key and window.

    Computed answers also have accumulators, which are not compared.
    """
    return ComparedRows(
        (*key_names(pipeline), *SPAN), pipeline.answer_columns, filled=tuple(SPAN), carried=tuple(pipeline.parts)
    )


def pane_answers(pipeline: Pipeline, panes: Relation) -> Query:
    """Return the query for the answer in each pane.

    The column `retraction` is true if the pane retracts this answer.
    """
    results = [quoted(name) for name in pipeline.answer_columns]
    values = [f"answer.{n} AS {n}" if pipeline.how.value == "discarding" else n for n in results]
    items = join_items(key_names(pipeline), list(SPAN), values, ["timing", *VERSION, "retraction"])
    return Query(f"SELECT {items} FROM {panes}")


def latest_answers(pipeline: Pipeline, panes: Relation) -> Query:
    """Return the query for the answer in each window's last pane, with the columns of `pane_answers`."""
    # A pane that replaces an earlier pane has the same version as the retraction of the earlier pane. The order by
    # `retraction` puts the new pane before the retraction (rule V1).
    return first_of(bracketed(pane_answers(pipeline, panes)), [*key_names(pipeline), *SPAN], [*NEWEST, "retraction"])


def in_range(first: int, last: int) -> Condition:
    """Return the condition that a window belongs to a range: the window's timestamp is in `[first, last)` (rule V5)."""
    return Condition(f"(window_end > {first}L AND window_end <= {last}L)")


def reads_whole_windows(pipeline: Pipeline) -> bool:
    """Return True if the event times from `events_from` to `events_until` lie only in windows of the backfill's range.

    If the result is True, the query need not filter the windows by the range.
    """
    where = pipeline.where
    fixed = type(where) is Fixed and where.phase is None
    return fixed and pipeline.earlier is None and not pipeline.exceeds_time


def _beginning(where: Windowing, at: int) -> int:
    """Return the start, in microseconds, of the window that contains an instant."""
    (window,) = where.assign(at)
    return window.start


def events_in(pipeline: Pipeline, first: int) -> int | None:
    """Return the earliest event time that a stage's records can have in windows with timestamps from `first` on.

    All times are in microseconds. Returns None if the windows may contain any event time. The stage's windows must not
    merge.
    """
    longest = pipeline.where.longest
    if longest is None or isinstance(pipeline.where, OwnWindows) or first <= BEGINNING:
        return None
    found = window_at(pipeline.where, first)
    return first + 1 - longest if found is None else found.start


def events_from(pipeline: Pipeline, first: int) -> int | None:
    """Return the earliest event time that the log's records can have in windows with timestamps from `first` on.

    All times are in microseconds. Returns None if the windows may contain any event time. For sessions, the result is a
    lower bound for the event time of a session's last record. How much earlier the session begins depends on the data.
    """
    where = pipeline.where
    if reads_whole_windows(pipeline):
        return _beginning(where, first)
    if where.merges:
        return first + 1 - where.reach if pipeline.earlier is None else None
    since = None if where.longest is None else first + 1 - where.longest
    if since is None or pipeline.earlier is None:
        return since
    # A record of a later stage is an answer of the earlier stage. The record's event time is not after the end of the
    # answer's window.
    return None if pipeline.earlier.where.merges else events_from(pipeline.earlier, since)


def events_until(pipeline: Pipeline, last: int) -> int | None:
    """Return an upper bound on the event times in windows with timestamps before `last`.

    The bound also holds for windows that may merge with a window whose timestamp is before `last`. All event times are
    less than the bound, which is in microseconds. Returns None if the windows may contain any event time; for example,
    an answer of an earlier stage may have an event time before the last event of its window.
    """
    until = last
    if reads_whole_windows(pipeline):
        until = _beginning(pipeline.where, last)
        return until if until < END_OF_TIME else None
    for place, stage in enumerate(reversed(pipeline.stages)):
        if place and stage.timestamp is not END_OF_WINDOW:
            return None
        if isinstance(stage.where, OwnWindows):
            # A custom window may begin before the event for which it is assigned. So an event after `last` may be in a
            # window that begins before `last`.
            ahead = stage.where.reach if stage.where.merges else stage.where.longest
            if ahead is None:
                return None
            until += ahead
    return until if until < END_OF_TIME else None
