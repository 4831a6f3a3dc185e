"""Compare a ledger's rows with replayed rows in the common SQL dialect; the same row may occur several times (law L3).

An accumulator is the partial result of a window. If Python code merges accumulators, equal accumulators may have
different forms. Therefore, the lists in such an accumulator are compared without regard to order. The parts of the
accumulator that are not lists are not compared, but the panes that are computed from these parts are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tailrace.engines.choose import EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import PANE, PARTIAL
from tailrace.lake.schema.pipeline_tables import ledger_contract, part_types, predecessor_types
from tailrace.model.base.types import element_type
from tailrace.model.combiners.basic import Merge
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.assignment import join_items
from tailrace.sql.results.compared_rows import counted_rows
from tailrace.sql.terms import Query, Relation, quoted

SHOWN = 5
"""The maximum number of differences that a replay shows."""

RETRACTION = "retraction"
"""The kind that a comparison assigns to panes that are retractions."""


@dataclass(frozen=True)
class RowCount:
    """The counts of one kind of row: rows in the ledger, rows in the replay, and rows that are in both."""

    ledger: int
    replay: int
    same: int


@dataclass(frozen=True)
class RowDifference:
    """A row that only the ledger or only the replay has, or that differs between the ledger and the replay.

    `kind` is the kind of the ledger's row, or `RETRACTION`; `key` and `window` (two instants) may be empty for a
    rejected record. For a definition without windows, `key` is the position of the row's record in the log. `ledger`
    and `replay` contain the columns in which the row differs. If only the ledger has the row, `ledger` contains all
    columns that are not null, and `replay` is None. If only the replay has the row, `replay` contains these columns,
    and `ledger` is None. `times` has two numbers: how often the row occurs in the ledger, and how often it occurs in
    the replay.
    """

    kind: str
    epoch: int
    key: Mapping[str, Any]
    window: tuple[Any, Any]
    ledger: Mapping[str, Any] | None
    replay: Mapping[str, Any] | None
    times: tuple[int, int]


Comparison: TypeAlias = tuple[dict[str, RowCount], tuple[RowDifference, ...]]
"""The result of a comparison: the counts for each kind of ledger row, and the first rows that differ."""


@dataclass(frozen=True)
class Replayed:
    """The result of a replay of the epochs `first` to `last`; `latest` is the last epoch of the ledger.

    `counts` maps each kind of ledger row to its counts; a pipeline's retractions are counted separately from its panes.
    `table` names the table with the replayed rows, or is None if the rows were not stored.
    """

    first: int
    last: int
    latest: int
    counts: Mapping[str, RowCount]
    differences: tuple[RowDifference, ...]
    seconds: float
    engine: EngineChoice
    table: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the replay has exactly the ledger's rows, with each row occurring equally often."""
        return all(count.ledger == count.replay == count.same for count in self.counts.values())


@dataclass(frozen=True)
class ReplayedColumns:
    """The columns of a ledger that a replay computes again.

    `terms` has SQL terms whose values are equal for equal rows.

    The other fields list column names. A row is identified by its kind, its epoch, and the columns in `key`, `span` and
    `place`. Rows other than partials (stored window states) are also identified by the columns in `version`.
    """

    terms: Mapping[str, str]
    key: Sequence[str]
    span: Sequence[str] = ()
    place: Sequence[str] = ()
    version: Sequence[str] = ()


def compare_rows(session: Session, columns: ReplayedColumns, ledger: Relation, replayed: Relation) -> Comparison:
    """Compare two relations of ledger rows: count the equal rows of each kind, and find the first differences."""
    items = ", ".join(f"{term} AS {quoted(name)}" for name, term in columns.terms.items())
    ours, theirs = (Query(f"SELECT {items} FROM {relation}") for relation in (ledger, replayed))
    grouped = counted_rows(ours, theirs, [quoted(name) for name in columns.terms])
    sums = {"ledger": "_ours", "replay": "_theirs", "same": "LEAST(_ours, _theirs)"}
    totals = ", ".join(f"CAST(SUM({term}) AS bigint) AS {name}" for name, term in sums.items())
    kinds = session.rows(Query(f"SELECT kind, {totals} FROM ({grouped}) GROUP BY kind ORDER BY kind"))
    counts = {row.pop("kind"): RowCount(**row) for row in kinds}
    if all(count.ledger == count.replay == count.same for count in counts.values()):
        return counts, ()
    by = (*columns.key, *columns.span, *columns.version, *columns.place)
    order = join_items(["epoch", "kind", *map(quoted, by)])
    # If no rows are duplicated, at most two rows have the same identity: one in the ledger and one in the replay.
    # Therefore, `2 * SHOWN` rows are enough to show `SHOWN` differences.
    most = f"ORDER BY {order} LIMIT {2 * SHOWN}"
    differing = Query(f"SELECT * FROM (SELECT * FROM ({grouped}) WHERE _ours <> _theirs) {most}")
    return counts, tuple(_differences(columns, session.readable_rows(differing)))[:SHOWN]


def pipeline_columns(session: Session, pipeline: Pipeline, ledger: Relation) -> ReplayedColumns:
    """Return the columns of a pipeline's ledger that are compared: all columns except the writer.

    Retractions are compared as a separate kind of row. The column `is_last` is left out if some panes in the ledger
    have null in this column: these panes were written before ledgers had the column.
    """
    terms = _comparable(pipeline)
    if _says_no_last(session, ledger):
        del terms["is_last"]
    place = ("source_partition", "source_offset")
    return ReplayedColumns(terms, tuple(pipeline.key), tuple(SPAN), place, ("generation", "pane_index"))


_SIDES = ("_ours", "_theirs")
"""The two count columns: how often a row occurs in the ledger, and how often it occurs in the replay."""


def _says_no_last(session: Session, ledger: Relation) -> bool:
    """Return True if some pane in the ledger does not state whether it is the last pane of its window."""
    panes = f"FROM {ledger} WHERE kind = '{PANE}' AND NOT retraction"
    # The row is read as text, because a window may begin before the earliest instant that Python can represent.
    some = session.readable_rows(Query(f"SELECT * {panes} LIMIT 1"))
    if some and "is_last" not in some[0]:
        return True
    return bool(some and session.rows(Query(f"SELECT epoch {panes} AND is_last IS NULL LIMIT 1")))


def _comparable(pipeline: Pipeline) -> dict[str, str]:
    """Map the ledger's columns to SQL terms that have equal values for equal rows."""
    terms = {}
    for name in ledger_contract(pipeline).columns:
        if name == "kind":
            terms[name] = f"IF(kind = '{PANE}' AND retraction, '{RETRACTION}', kind)"
        elif name in ("fired", "pending"):
            if fields := _parts(pipeline, f"{name}."):
                terms[name] = f"IF({name} IS NULL, NULL, NAMED_STRUCT({', '.join(fields)}))"
        elif name == "predecessors":
            own = [n for n in predecessor_types(pipeline) if n not in part_types(pipeline)]
            fields = [*(f"'{n}', _old.{n}" for n in own), *_parts(pipeline, "_old.")]
            terms[name] = f"SORT_ARRAY(TRANSFORM(predecessors, _old -> NAMED_STRUCT({', '.join(fields)})))"
        elif name not in ("writer", "retraction"):
            terms[name] = quoted(name)
    return terms


def _parts(pipeline: Pipeline, of: str) -> list[str]:
    """Return the parts of an accumulator (a partial result) that can be compared, as fields of an SQL struct."""
    fields = []
    for name, type in part_types(pipeline).items():
        term = f"{of}{quoted(name)}"
        if element_type(type) is not None:
            fields.append(f"'{name}', SORT_ARRAY({term})")
        elif name.endswith("_high"):
            # If a row was written before the column was introduced, the row has null in the column. The null counts as
            # 0.
            fields.append(f"'{name}', COALESCE({term}, 0)")
        elif name not in pipeline.parts or pipeline.parts[name].merge is not Merge.OWN:
            fields.append(f"'{name}', {term}")
    return fields


def _differences(columns: ReplayedColumns, rows: Sequence[dict[str, Any]]) -> Iterator[RowDifference]:
    """Pair each differing row of the ledger with the replay's row of the same identity; yield the differences."""
    places: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        # The generation and the pane index of a partial (a stored window state) are compared, and are therefore not
        # part of its identity.
        version = () if row["kind"] == PARTIAL else columns.version
        own = ("kind", "epoch", *columns.key, *columns.span, *columns.place, *version)
        places.setdefault(tuple(row[name] for name in own), []).append(row)
    for of in places.values():
        ledger, replay = ([row for row in of if row[side] > row[other]] for side, other in (_SIDES, _SIDES[::-1]))
        if len(ledger) == len(replay) == 1:
            differ = {name for name, value in ledger[0].items() if value != replay[0][name]}
            yield _difference(columns, ledger[0], replay[0], differ)
            continue
        for row in of:
            filled = {name for name, value in row.items() if value is not None}
            more = row["_ours"] > row["_theirs"]
            yield _difference(columns, row if more else None, None if more else row, filled)


def _difference(
    columns: ReplayedColumns, ledger: dict[str, Any] | None, replay: dict[str, Any] | None, names: set[str]
) -> RowDifference:
    row = ledger or replay or {}
    differing = names - {"kind", "epoch", *columns.key, *columns.span, *_SIDES}
    of_ledger, of_replay = (
        None if one is None else {name: one[name] for name in one if name in differing} for one in (ledger, replay)
    )
    times = tuple(max(one[side] for one in (ledger, replay) if one is not None) for side in _SIDES)
    start, end = (row[name] for name in columns.span) if columns.span else (None, None)
    key = {name: row[name] for name in columns.key}
    return RowDifference(row["kind"], row["epoch"], key, (start, end), of_ledger, of_replay, (times[0], times[1]))
