"""Write the current rows of maps and joins in SQL, and the corrections that a backfill makes to these rows.

A row of a map is identified by the position of its source record. A backfill retracts all rows of a source record
together, and writes new rows with a higher generation. A pair of a join is identified by the positions of its two
records and, if the join has windows, by its window. If a join can retract pairs, a row is identified by all its values.
Such a row occurs as often as it was emitted, minus the number of times it was retracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.model.definition.definition import KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import JOIN_WINDOW, SIDES
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME, SIGN
from tailrace.sql.epoch import join_rows, map_rows
from tailrace.sql.query_shapes import equal_in, select_list
from tailrace.sql.records.stage_records import pair_place
from tailrace.sql.results.backfill_rows import CORRECTIONS, BackfillVersion
from tailrace.sql.results.compared_rows import ComparedRows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, quoted


@dataclass(frozen=True, kw_only=True)
class OutputRows(ComparedRows):
    """The rows that a map or a join has in its ledger, and how these rows are compared and read.

    `types` are the types of the ledger's columns. `said` are the output columns of a ledger row: results, event time
    and position. `epoch` is the column with the epoch in which readers read the row. `read` lists the columns of a
    reader's record, and `place` has the select-list items for the record's position.
    """

    types: Mapping[str, str]
    said: tuple[str, ...]
    epoch: str
    read: tuple[str, ...]
    place: str

    def current(self, ledger: Relation, within: Condition = ALWAYS, until: int | None = None) -> Query:
        """Return the query for a ledger's current rows: the rows of the highest generation, without retractions.

        The highest generation is determined separately for each position.

        `within` is a condition on the event time. `until` is the last epoch whose rows are read. If rows are identified
        by all their values, the result's column `epoch` has no meaning.
        """
        said = ", ".join(self.said)
        rows = f"SELECT * FROM {ledger} WHERE kind = '{PRODUCTION}' AND {within}"
        rows += "" if until is None else f" AND {self.epoch} <= {until}L"
        if self.by_all:
            given, taken = (f"SELECT {said} FROM ({rows}) WHERE {which}" for which in ("NOT retraction", "retraction"))
            return Query(f"SELECT *, 0L AS epoch FROM ({given} EXCEPT ALL {taken})")
        # Only a backfill writes a row with a higher generation: all rows that a stream writes for one position have the
        # same generation.
        mended = f"SELECT * FROM ({rows}) WHERE writer = 'backfill'"
        same = equal_in("m", "s", self.identity)
        higher = f"SELECT 1 FROM ({mended}) m WHERE {same} AND m.generation > s.generation"
        return Query(f"SELECT {said}, epoch FROM ({rows}) s WHERE NOT retraction AND NOT EXISTS ({higher})")

    def records(self, ledger: Relation, until: int) -> Query:
        """Return the query for a ledger's current rows, with the readers' columns (`stage_records.productions`)."""
        return Query(f"SELECT {', '.join(self.read)}, {self.place} FROM ({self.current(ledger, until=until)})")

    def corrected(self, view: Relation, written: BackfillVersion) -> Query:
        """Return the query for the ledger rows that correct differences: retractions of held rows, and the computed
        rows.
        """
        common = written.columns(PRODUCTION) | {name: name for name in (*self.identity, *self.common)}
        texts = []
        for which, retraction, holds in CORRECTIONS:
            values = {name: quoted(f"{which}_{name}") for name in self.values} | {"retraction": retraction}
            texts.append(f"SELECT {select_list(self.types, common | values)} FROM {view} WHERE {holds}")
        return Query(" UNION ALL ".join(texts))


@singledispatch
def output_rows(definition: object) -> OutputRows:
    """Return the `OutputRows` of a map or a join: what identifies its rows, and which columns its readers get."""
    raise KindError("reading of rows that stand", definition)


@output_rows.register
def _of_map(definition: Map) -> OutputRows:
    return OutputRows(
        identity=tuple(map_rows.PLACE),
        values=definition.results,
        common=(PANE_TIME,),
        several=definition.multiplies,
        types=map_rows.row_types(definition),
        said=(*map(quoted, definition.results), PANE_TIME, *map_rows.PLACE),
        epoch="source_epoch",
        read=tuple(map(quoted, definition.produced.columns)),
        place=", ".join(f"{ours} AS {theirs}" for ours, theirs in map_rows.PLACE.items()),
    )


@output_rows.register
def _of_join(join: Join) -> OutputRows:
    places = tuple(name for side in SIDES for name in JOIN_PLACE[side])
    return OutputRows(
        identity=(*places, *(JOIN_WINDOW if join.where is not None else ())),
        values={
            **{name: type for name, type in join.results.items() if name not in JOIN_WINDOW},
            PANE_TIME: "timestamp",
        },
        by_all=join.takes_back,
        types=join_rows.row_types(join),
        said=(*map(quoted, join.results), PANE_TIME, *places),
        epoch="epoch",
        read=tuple(map(quoted, join.produced.columns)),
        place=pair_place(join) + (f", 1 AS {SIGN}" if join.takes_back else ""),
    )
