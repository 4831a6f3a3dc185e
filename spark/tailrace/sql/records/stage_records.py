"""The SQL that selects the records that one definition reads from another definition: from panes, answers or output
rows.
"""

from __future__ import annotations

from functools import singledispatch

from tailrace.lake.schema.contracts import OPEN, PANE, PRODUCTION
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME, SIGN, Log
from tailrace.sql.terms import Condition, Query, Relation, Sql, quoted

_OPENED = f"COALESCE(reason = '{OPEN}', false)"
"""The condition that a backfill wrote a pane for a window that was still open in the stream."""


def changes(pipeline: Pipeline, rows: Relation) -> Query:
    """Return the query that converts a stage's ledger rows to a later stage's records.

    The reference for the conversion is `model.step.stages.changes`.

    A backfill may correct windows that are still open in the stream. A later stage reads such a correction together
    with the epoch that follows the correction.
    """
    where = f"kind = '{PANE}' AND (writer = 'stream' OR {_OPENED})"
    read = f"IF({_OPENED}, epoch + 1L, epoch) AS _epoch"
    return _records(pipeline, Query(f"SELECT *, IF(retraction, -1, 1) AS {SIGN}, {read} FROM {rows} WHERE {where}"))


def sent_with(epoch: int, after: int | None = None) -> Condition:
    """Return the condition that a later stage reads a ledger row in an epoch after `after` and up to `epoch`.

    If `after` is None, the condition is that a later stage reads the row in the epoch `epoch`.
    """
    after = epoch - 1 if after is None else after
    streamed = f"writer = 'stream' AND epoch > {after}L AND epoch <= {epoch}L"
    return Condition(f"kind = '{PANE}' AND (({streamed}) OR ({_corrected(epoch, after)}))")


def corrected_before(epoch: int) -> Condition:
    """Return the condition that a backfill wrote a pane between the previous epoch and `epoch`."""
    return Condition(f"kind = '{PANE}' AND {_corrected(epoch, epoch - 1)}")


def _corrected(epoch: int, after: int) -> str:
    return f"{_OPENED} AND epoch >= {after}L AND epoch < {epoch}L"


def sent_until(epoch: int) -> Condition:
    """Return the condition that a later stage has read a pane by the end of `epoch`."""
    return Condition(f"kind = '{PANE}' AND epoch <= {epoch}L AND NOT ({_OPENED} AND epoch = {epoch}L)")


def records_of_batch(pipeline: Pipeline, answers: Query) -> Query:
    """Return the query that converts answers, which `answers.batch_answers` computes, to the records of a later stage.

    The bounds of the answers' windows are in microseconds.
    """
    spans = ["window_start", "window_end"]
    items = [quoted(name) for name in (*pipeline.key, *pipeline.results)]
    items += [f"TIMESTAMP_MICROS({name}) AS {name}" for name in spans]
    stamp = "CAST(NULL AS bigint)" if pipeline.stamp is None else quoted(pipeline.stamp)
    items.append(f"TIMESTAMP_MICROS({stamp}) AS {PANE_TIME}")
    return _records(pipeline, Query(f"SELECT {', '.join(items)}, 1 AS {SIGN}, 0L AS _epoch FROM ({answers})"))


def current_records(pipeline: Pipeline, answers: Query) -> Query:
    """Return the query for the records that a reader gets from the current rows of a table of answers."""
    at = f"CAST(NULL AS timestamp) AS {PANE_TIME}"
    return _records(pipeline, Query(f"SELECT *, {at}, 1 AS {SIGN}, epoch AS _epoch FROM ({answers})"))


_PLACE = "source_partition AS _source, source_offset AS _offset"


@singledispatch
def productions(definition: Definition, rows: Relation) -> Query:
    """Return the query for the records that a reader gets from a stream's ledger rows."""
    raise KindError("text of productions", definition)


@productions.register
def _of_computation(definition: Computation, rows: Relation) -> Query:
    return _produced(definition.produced, rows, f"epoch AS _epoch, {_PLACE}")


@productions.register
def _of_map(definition: Map, rows: Relation) -> Query:
    """Return the query for the records that a map's reader gets, with the positions of the map's source records."""
    return _produced(definition.produced, rows, f"source_epoch AS _epoch, {_PLACE}", "writer = 'stream'")


@productions.register
def _of_join(definition: Join, rows: Relation) -> Query:
    signed = f"IF(retraction, -1, 1) AS {SIGN}, " if definition.takes_back else ""
    return _produced(definition.produced, rows, signed + pair_place(definition), "writer = 'stream'")


def _produced(log: Log, rows: Relation, place: str, *where: str) -> Query:
    columns, about = ", ".join(map(quoted, log.columns)), " AND ".join((f"kind = '{PRODUCTION}'", *where))
    return Query(f"SELECT {columns}, {place} FROM {rows} WHERE {about}")


def pair_place(join: Join) -> str:
    """Return the select-list items for the position of a join's pair: its epoch, and text that identifies the pair.

    The text has the positions of both records and, if the join has windows, the start of the pair's window.
    """
    texts = []
    for side in ("left", "right"):
        epoch, partition, offset = (f"{side}_{part}" for part in ("epoch", "partition", "offset"))
        parts = (f"COALESCE(CAST({epoch} AS string), '')", f"COALESCE({partition}, '')",
                 f"COALESCE(CAST({offset} AS string), '')")  # fmt: skip
        texts.append(f"CONCAT({parts[0]}, ':', {parts[1]}, ':', {parts[2]})")
    window = "" if join.where is None else ", '@', CAST(UNIX_MICROS(window_start) AS string)"
    return f"epoch AS _epoch, CONCAT({texts[0]}, '|', {texts[1]}{window}) AS _source, CAST(NULL AS bigint) AS _offset"


def claimed_ids(computation: Computation, rows: Relation) -> Query:
    """Return the query for the ids that a computation's productions claim in its registry, with event times and
    positions.
    """
    once, types = computation.once, computation.produced.columns
    assert once is not None
    about = [f"kind = '{PRODUCTION}'", f"{quoted(once.by)} IS NOT NULL"]
    if once.keep is not None:
        about.append(once.keep.holds(Sql(), {name: quoted(name) for name in types}, types))
    by = quoted(once.by)
    # A timestamp is written in UTC without a time zone, because engines write time zones differently.
    text = f"CAST({by} AS TIMESTAMP_NTZ)" if types[once.by] == "timestamp" else by
    items = [f"CAST({text} AS STRING) AS id", PANE_TIME, "source_partition", "source_offset"]
    return Query(f"SELECT {', '.join(items)} FROM {rows} WHERE {' AND '.join(about)}")


def _records(pipeline: Pipeline, rows: Query) -> Query:
    columns = [quoted(name) for name in pipeline.panes.columns if name != PANE_TIME]
    at = f"COALESCE({PANE_TIME}, TIMESTAMP_MICROS(UNIX_MICROS(window_end) - 1L)) AS {PANE_TIME}"
    place = f"{SIGN}, _epoch, CAST(NULL AS string) AS _source, CAST(NULL AS bigint) AS _offset"
    return Query(f"SELECT {', '.join(columns)}, {at}, {place} FROM ({rows})")
