"""The comparison of a ledger's rows with replayed rows, as multisets, in the common SQL (law L3).

Accumulators that Python merges may have several equal forms: their lists are compared in no order, and parts that are
no lists are not compared, but the panes that are computed from them are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import PANE, PARTIAL
from tailrace.lake.schema.pipeline_tables import ledger_contract, part_types, predecessor_shape
from tailrace.model.combiners.basic import Merge
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.assignment import listed, names
from tailrace.sql.terms import Query, Relation, quoted

SHOWN = 5
"""The maximum number of differences that are quoted."""

RETRACTION = "retraction"
"""The kind of a pane that is a retraction."""


@dataclass(frozen=True)
class RowCount:
    """The number of rows of one kind in the ledger and in the replay, and how many of them are the same."""

    ledger: int
    replay: int
    same: int


@dataclass(frozen=True)
class RowDifference:
    """A row that only the ledger or only the replay has, or that differs between them.

    `kind` is the ledger's, or `RETRACTION`; `key` and `window` (two instants) may be empty for a rejected record.
    `ledger` and `replay` hold the columns in which the row differs; where only one side has the row, that side holds
    all columns that are not null, and the other is None. `times` is how often each side has the row.
    """

    kind: str
    epoch: int
    key: Mapping[str, Any]
    window: tuple[Any, Any]
    ledger: Mapping[str, Any] | None
    replay: Mapping[str, Any] | None
    times: tuple[int, int]


def compared(
    session: Session, pipeline: Pipeline, ledger: Relation, replayed: Relation
) -> tuple[dict[str, RowCount], tuple[RowDifference, ...]]:
    """Count the rows that two relations of ledger rows have in common, by kind, and find the first differences.

    The writer of a row is not compared. Retractions count as a kind of their own. Where panes of the ledger do not say
    whether they are the last, as they were written before ledgers had that column, it is not compared.
    """
    columns = _comparable(pipeline)
    if _says_no_last(session, ledger):
        del columns["is_last"]
    items = ", ".join(f"{term} AS {quoted(name)}" for name, term in columns.items())
    sides = ((ledger, "1L AS _ledger, 0L AS _replay"), (replayed, "0L AS _ledger, 1L AS _replay"))
    both = " UNION ALL ".join(f"SELECT {items}, {side} FROM {rows}" for rows, side in sides)
    by = listed([quoted(name) for name in columns])
    per = ", ".join(f"CAST(SUM({side}) AS bigint) AS {side}" for side in _SIDES)
    grouped = f"SELECT {by}, {per} FROM ({both}) GROUP BY {by}"
    sums = {"ledger": "_ledger", "replay": "_replay", "same": "LEAST(_ledger, _replay)"}
    totals = ", ".join(f"CAST(SUM({term}) AS bigint) AS {name}" for name, term in sums.items())
    kinds = session.rows(Query(f"SELECT kind, {totals} FROM ({grouped}) GROUP BY kind ORDER BY kind"))
    counts = {row.pop("kind"): RowCount(**row) for row in kinds}
    if all(count.ledger == count.replay == count.same for count in counts.values()):
        return counts, ()
    order = listed(["epoch", "kind", *names(pipeline), *SPAN, *_VERSION, *_SOURCE])
    # A place has at most one row of each side, unless rows are doubled: so many rows make `SHOWN` differences.
    most = f"ORDER BY {order} LIMIT {2 * SHOWN}"
    differing = Query(f"SELECT * FROM (SELECT * FROM ({grouped}) WHERE _ledger <> _replay) {most}")
    rows = session.readable_rows(differing)
    return counts, tuple(_differences(pipeline, rows))[:SHOWN]


_VERSION = ("generation", "pane_index")
_SOURCE = ("source_partition", "source_offset")
_SIDES = ("_ledger", "_replay")


def _says_no_last(session: Session, ledger: Relation) -> bool:
    """Tell whether a pane of the ledger does not say whether it is its window's last."""
    panes = f"FROM {ledger} WHERE kind = '{PANE}' AND NOT retraction"
    # As text, as a window may begin before the first instant that Python has.
    some = session.readable_rows(Query(f"SELECT * {panes} LIMIT 1"))
    if some and "is_last" not in some[0]:
        return True
    return bool(some and session.rows(Query(f"SELECT epoch {panes} AND is_last IS NULL LIMIT 1")))


def _comparable(pipeline: Pipeline) -> dict[str, str]:
    """Write the ledger's columns as SQL terms that are equal for equal rows, by name."""
    terms = {}
    for name in ledger_contract(pipeline).columns:
        if name == "kind":
            terms[name] = f"IF(kind = '{PANE}' AND retraction, '{RETRACTION}', kind)"
        elif name in ("fired", "pending"):
            if fields := _parts(pipeline, f"{name}."):
                terms[name] = f"IF({name} IS NULL, NULL, NAMED_STRUCT({', '.join(fields)}))"
        elif name == "predecessors":
            own = [n for n in predecessor_shape(pipeline) if n not in part_types(pipeline)]
            fields = [*(f"'{n}', _old.{n}" for n in own), *_parts(pipeline, "_old.")]
            terms[name] = f"SORT_ARRAY(TRANSFORM(predecessors, _old -> NAMED_STRUCT({', '.join(fields)})))"
        elif name not in ("writer", "retraction"):
            terms[name] = quoted(name)
    return terms


def _parts(pipeline: Pipeline, of: str) -> list[str]:
    """Write the parts of an accumulator that can be compared, as fields of a struct."""
    fields = []
    for name, shape in part_types(pipeline).items():
        term = f"{of}{quoted(name)}"
        if isinstance(shape, list):
            fields.append(f"'{name}', SORT_ARRAY({term})")
        elif name.endswith("_high"):
            # A row from before there was the column has none there.
            fields.append(f"'{name}', COALESCE({term}, 0)")
        elif name not in pipeline.parts or pipeline.parts[name].merge is not Merge.OWN:
            fields.append(f"'{name}', {term}")
    return fields


def _differences(pipeline: Pipeline, rows: Sequence[dict[str, Any]]) -> Iterator[RowDifference]:
    """Pair the differing rows of the ledger and the replay by their place: kind, epoch, key, window and record."""
    places: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        # The generation and the pane index of a partial are compared, and so are no part of its place.
        own = ("kind", "epoch", *pipeline.key, *SPAN, *_SOURCE, *(() if row["kind"] == PARTIAL else _VERSION))
        places.setdefault(tuple(row[name] for name in own), []).append(row)
    for of in places.values():
        ledger, replay = ([row for row in of if row[side] > row[other]] for side, other in (_SIDES, _SIDES[::-1]))
        if len(ledger) == len(replay) == 1:
            differ = {name for name, value in ledger[0].items() if value != replay[0][name]}
            yield _difference(pipeline, ledger[0], replay[0], differ)
            continue
        for row in of:
            filled = {name for name, value in row.items() if value is not None}
            more = row["_ledger"] > row["_replay"]
            yield _difference(pipeline, row if more else None, None if more else row, filled)


def _difference(
    pipeline: Pipeline, ledger: dict[str, Any] | None, replay: dict[str, Any] | None, columns: set[str]
) -> RowDifference:
    row = ledger or replay or {}
    differing = columns - {"kind", "epoch", *pipeline.key, *SPAN, *_SIDES}
    of_ledger, of_replay = (
        None if one is None else {name: one[name] for name in one if name in differing} for one in (ledger, replay)
    )
    times = tuple(max(one[side] for one in (ledger, replay) if one is not None) for side in _SIDES)
    start, end = (row[name] for name in SPAN)
    key = {name: row[name] for name in pipeline.key}
    return RowDifference(row["kind"], row["epoch"], key, (start, end), of_ledger, of_replay, (times[0], times[1]))
