"""The replay of a join: its rows follow from the logs and the recorded clocks, whatever the stream did (rule L3).

A pair came in the epoch of its later record; a record without a partner, in the first epoch whose watermark says that
none can come; a late one is late by the watermark before its own epoch. So one query finds again what every epoch gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tailrace.engines.batch import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import recorded
from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.join import JOIN_WINDOW, LEFT, RIGHT, SIDES, Join
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.sql.epoch import join_rows
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.results import join_output
from tailrace.sql.terms import Query, Relation, all_of, bracketed, quoted
from tailrace.verify.audit_checks import SHOWN, in_common
from tailrace.verify.row_diff import RowCount
from tailrace.verify.rows_replay import Compared, RowsReplayed, replayed_rows


def replay_join(lake: Lake, join: Join, first: int | None = None, last: int | None = None) -> RowsReplayed:
    """Find the rows of epochs `first` to `last` again; by default from the first to the last of the ledger.

    Raises `ReplayError` where an epoch is not in the ledger, and `OtherDefinitionError` where the ledger is another
    definition's.
    """
    return replayed_rows(lake, join, first, last, partial(_compared, join=join))


@dataclass(frozen=True)
class _Judged:
    """The entries of each side that were not late, and those that were, with the epochs that they came in."""

    good: Mapping[str, Relation]
    late: Mapping[str, Relation]


def _compared(session: Session, ledger: Relation, first: int, last: int, join: Join) -> Compared:
    clocks = _clocks(session, join, last)
    judged = _judged(session, join, clocks, last)
    within = f"epoch BETWEEN {first}L AND {last}L"
    given = _given(session, join, judged, clocks)
    made = session.materialized(Query(f"SELECT * FROM ({given}) WHERE {within}"))
    own = f"kind = '{PRODUCTION}' AND writer = 'stream' AND {within}"
    names = [*map(quoted, join.results), PANE_TIME, "epoch", *(n for side in SIDES for n in join_rows.JOIN_PLACE[side])]
    held = Relation(f"(SELECT {', '.join(names)} FROM {ledger} WHERE {own})")
    same = in_common(session, held, made, {name: name for name in names})
    counts = {PRODUCTION: RowCount(session.count(held), session.count(made), same)}
    counts[LATE] = _late(session, join, judged, ledger, within)
    differ = join_output.differences(
        join, Query(f"SELECT * EXCEPT (epoch) FROM {made}"), Query(f"SELECT * EXCEPT (epoch) FROM {held}")
    )
    rows = session.rows(Query(f"SELECT * FROM ({differ}) WHERE change <> 'same' LIMIT {SHOWN}"))
    return counts, tuple(rows)


def _clocks(session: Session, join: Join, last: int) -> Relation:
    """Name a relation of the recorded epochs: the watermark before each, and the one after it, in microseconds."""
    found = recorded(session.lake, ledger_name(join.name))
    epochs = [epoch for epoch in sorted(found) if epoch <= last]
    after = [found[epoch].clock.watermark for epoch in epochs]
    columns = {"epoch": epochs, "before": [BEGINNING, *after[:-1]], "after": after}
    types = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in columns])
    return session.relation_of(pa.table(columns, schema=types))


def _judged(session: Session, join: Join, clocks: Relation, last: int) -> _Judged:
    records = log_records.streamed(session, join.log, last)
    good, late = dict[str, Relation](), dict[str, Relation]()
    condition = join_rows.too_late(join, "before")
    for side in SIDES:
        entries = join_rows.entries(join, records, side)
        text = f"SELECT e.*, c.before FROM ({entries}) e JOIN {clocks} c ON e._epoch = c.epoch"
        came = session.materialized(Query(text))
        good[side] = Relation(f"(SELECT * EXCEPT (before) FROM {came} WHERE NOT ({condition}))")
        late[side] = Relation(f"(SELECT * FROM {came} WHERE {condition})")
    return _Judged(good, late)


def _given(session: Session, join: Join, judged: _Judged, clocks: Relation) -> Query:
    """Write the SQL of all that the epochs gave, each row with its epoch."""
    left, right = (f"{side}_epoch" for side in SIDES)
    pairs = join_output.output(join, join_rows.pairs(join, judged.good[LEFT], judged.good[RIGHT]))
    texts = [f"SELECT *, GREATEST({left}, {right}) AS epoch FROM ({pairs})"]
    for side in filter(join.keeps, SIDES):
        rows, others = judged.good[side], judged.good[RIGHT if side == LEFT else LEFT]
        alone = session.materialized(join_rows.alone(join, side, rows, others))
        texts.append(_with_epoch(join, side, alone, clocks))
    return Query(" UNION ALL ".join(texts))


def _with_epoch(join: Join, side: str, alone: Relation, clocks: Relation) -> str:
    """Write the SQL of records without a partner, each with the epoch whose watermark completed it."""
    known = [*join_rows.JOIN_PLACE[side], *(JOIN_WINDOW[:1] if join.where is not None else ())]
    until = "UNIX_MICROS(window_end)" if join.where is not None else f"at + {join.ahead(side) + 1}L"
    types = {name: "string" if name.endswith("partition") else "bigint" for name in known} | {
        JOIN_WINDOW[0]: "timestamp"
    }
    nulls = ", ".join(f"CAST(NULL AS {types[name]}) AS {name}" for name in known)
    both = (
        f"SELECT {', '.join(known)}, {until} AS until, CAST(NULL AS bigint) AS clock FROM {alone} "
        f"UNION ALL SELECT {nulls}, after AS until, epoch AS clock FROM {clocks}"
    )
    # In the order of the instants, the last first: the first epoch whose watermark is not before a record's.
    done = f"SELECT *, MIN(clock) OVER (ORDER BY until DESC) AS done FROM ({both})"
    found = f"SELECT {', '.join(known)}, done FROM ({done}) WHERE clock IS NULL AND done IS NOT NULL"
    output = join_output.output(join, all_of(alone))
    same = equal_in("a", "d", known)
    epoch = f"GREATEST(a.{join_rows.JOIN_PLACE[side][0]}, d.done) AS epoch"
    return f"SELECT a.*, {epoch} FROM ({output}) a JOIN ({found}) d ON {same}"


def _late(session: Session, join: Join, judged: _Judged, ledger: Relation, within: str) -> RowCount:
    held = again = both = 0
    for side in SIDES:
        rows = f"SELECT *, UNIX_MICROS(watermark) AS judged_by FROM {ledger} WHERE kind = '{LATE}' AND side = '{side}'"
        had = Relation(f"({rows} AND {within})")
        found = bracketed(Query(f"SELECT * FROM {judged.late[side]} WHERE {within.replace('epoch', '_epoch')}"))
        on = dict(zip(join_rows.JOIN_PLACE[side], PLACE, strict=True)) | {"judged_by": "before"}
        held, again = held + session.count(had), again + session.count(found)
        both += in_common(session, had, found, on)
    return RowCount(held, again, both)
