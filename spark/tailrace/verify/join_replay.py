"""Replay a join: compute its rows from the logs and the recorded clocks, without using the stream's rows (rule L3).

A pair is current from the epoch of its later record until one of its two records is retracted. A record without a
partner is current from the record's own epoch, for as long as the record has no partner. If the join waits for
partners, such a record is current only from the first epoch whose watermark shows that no partner can arrive in time.
Whether a record is too late depends on the watermark before the record's epoch. So a few queries can recompute which
rows every epoch output and retracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tailrace.engines import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import LATE, PRODUCTION, REJECTED
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import LEFT, RIGHT, SIDE, SIDES
from tailrace.model.logs.log import PANE_TIME, PLACE, SIGN
from tailrace.sql.epoch import join_rows
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, Relation, quoted
from tailrace.verify.recorded_epochs import ReplayRange
from tailrace.verify.row_diff import Replayed
from tailrace.verify.rows_replay import RowsAgain, replayed_rows

FOREVER = 2**62
"""The value of the column `_until` for an entry that is never retracted."""

_STANDS = "_since, _until"


def replay_join(join: Join, lake: Lake, asked: ReplayRange) -> Replayed:
    """Recompute the rows that a join output or retracted in recorded epochs, and its rows for late records."""
    return replayed_rows(join, lake, asked, _again)


@dataclass(frozen=True)
class _Judged:
    """The entries of each side of a join, divided into `good` entries, which were in time, and `late` entries.

    A good entry was current from epoch `_since` until epoch `_until`. A late entry arrived in epoch `_came`; `_before`
    is the watermark before this epoch.
    """

    good: Mapping[str, Relation]
    late: Mapping[str, Relation]


def _again(join: Join, session: Session, first: int, last: int) -> Iterator[RowsAgain]:
    clocks = _clocks(session, join, last)
    judged = _judged(session, join, clocks, last)
    stood = session.materialized(_stood(session, join, judged, clocks))
    given = f"SELECT *, _since AS epoch, false AS retraction FROM {stood}"
    taken = f"SELECT *, _until AS epoch, true AS retraction FROM {stood} WHERE _until < {FOREVER}L"
    epochs = f"BETWEEN {first}L AND {last}L"
    made = Relation(f"({given} UNION ALL {taken}) WHERE epoch {epochs}")
    own = {name: quoted(name) for name in (*join.results, PANE_TIME, *(n for side in SIDES for n in JOIN_PLACE[side]))}
    own |= {"epoch": "epoch", "retraction": "retraction"}
    yield RowsAgain(PRODUCTION, f"writer = 'stream' AND epoch {epochs}", made, own)
    for side in SIDES:
        of_side = {"side": f"'{side}'", **dict(zip(JOIN_PLACE[side], PLACE, strict=True))}
        held = f"side = '{side}' AND epoch {epochs}"
        late = Relation(f"{judged.late[side]} WHERE _came {epochs}")
        yield RowsAgain(LATE, held, late, {"epoch": "_came", "watermark": "TIMESTAMP_MICROS(_before)", **of_side})
        if join.set_aside:
            records = join_rows.set_aside_of(join, log_records.streamed_rows(session, join.log, last))
            aside = Relation(f"({records}) WHERE {SIDE} = '{side}' AND _epoch {epochs}")
            yield RowsAgain(REJECTED, held, aside, {"epoch": "_epoch", "reason": FAILED, **of_side})


def _clocks(session: Session, join: Join, last: int) -> Relation:
    """Return a relation of the recorded epochs, with the watermarks before and after each epoch, in microseconds."""
    found = epoch_commits(session.lake, ledger_name(join.name))
    epochs = [epoch for epoch in sorted(found) if epoch <= last]
    after = [found[epoch].clock.watermark for epoch in epochs]
    columns = {"epoch": epochs, "_before": [BEGINNING, *after[:-1]], "_after": after}
    types = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in columns])
    return session.relation_of(pa.table(columns, schema=types))


def _judged(session: Session, join: Join, clocks: Relation, last: int) -> _Judged:
    records = log_records.streamed_rows(session, join.log, last)
    good, late = dict[str, Relation](), dict[str, Relation]()
    condition = join_rows.too_late(join, "_before")
    for side in SIDES:
        entries = join_rows.entries(join, records, side, {"_came": "_epoch"})
        came = session.materialized(
            Query(f"SELECT e.*, c._before FROM ({entries}) e JOIN {clocks} c ON _came = c.epoch")
        )
        in_time = Relation(f"(SELECT * EXCEPT (_before) FROM {came} WHERE NOT ({condition}))")
        good[side] = session.materialized(_lasting(join, side, in_time))
        late[side] = Relation(f"(SELECT * FROM {came} WHERE {condition})")
    return _Judged(good, late)


def _lasting(join: Join, side: str, came: Relation) -> Query:
    """Return SQL for the entries (records) of a join's side, each with the epochs `_since` and `_until`.

    An entry was current from epoch `_since` until epoch `_until`.
    """
    if not join.side(side).takes_back:
        return Query(f"SELECT * EXCEPT (_came), _came AS _since, {FOREVER}L AS _until FROM {came}")
    names = [quoted(name) for name in join_rows.entry_types(join, side)]
    columns, some = ", ".join(names), f"SUM({SIGN})"
    net = f"SELECT {columns}, _came, {some} AS _n FROM {came} GROUP BY {columns}, _came HAVING {some} <> 0"
    one_by_one = f"SELECT *, EXPLODE(SEQUENCE(1L, CAST(ABS(_n) AS bigint))) AS _one FROM ({net})"
    # If several entries are equal, a retraction may mean any of these entries; the earliest of these entries counts as
    # retracted.
    place = f"ROW_NUMBER() OVER (PARTITION BY {columns}, _n > 0 ORDER BY _came) AS _place"
    numbered = f"SELECT *, {place} FROM ({one_by_one})"
    given, taken = (f"(SELECT * FROM ({numbered}) WHERE _n {sign} 0)" for sign in (">", "<"))
    same = f"{equal_in('g', 't', names)} AND g._place = t._place"
    items = ", ".join(f"g.{name}" for name in names)
    until = f"COALESCE(t._came, {FOREVER}L) AS _until"
    return Query(f"SELECT {items}, g._came AS _since, {until} FROM {given} g LEFT JOIN {taken} t ON {same}")


def _stood(session: Session, join: Join, judged: _Judged, clocks: Relation) -> Query:
    """Return SQL for all rows that a join's epochs output; a row was current from `_since` until `_until`."""
    both = ", GREATEST(l._since, r._since) AS _since, LEAST(l._until, r._until) AS _until"
    rows = [join_rows.pairs(join, judged.good[LEFT], judged.good[RIGHT], both)]
    for side in filter(join.keeps, SIDES):
        partners = judged.good[RIGHT if side == LEFT else LEFT]
        told = session.materialized(_told(join, side, judged.good[side], clocks))
        if join.takes_back:
            rows.append(
                join_rows.unmatched_rows(join, side, _gaps(session, join, side, told, partners), None, f", {_STANDS}")
            )
        else:
            rows.append(join_rows.unmatched_rows(join, side, told, partners, f", {_STANDS}"))
    texts = (
        f"SELECT * FROM ({join_rows.output(join, text, '_since', '_until')}) WHERE _since < _until" for text in rows
    )
    return Query(" UNION ALL ".join(texts))


def _told(join: Join, side: str, rows: Relation, clocks: Relation) -> Query:
    """Return SQL for the entries of one side of a join, with a number for each entry in the column `_entry`.

    The column `_since` has the first epoch in which the join may output the entry without a partner.
    """
    numbered = f"SELECT *, ROW_NUMBER() OVER (ORDER BY _at) AS _entry FROM {rows}"
    if join.unmatched == "tell":
        return Query(numbered)
    complete = "window_end" if join.where is not None else f"LEAST(_at + {join.ahead(side) + 1}L, {END_OF_TIME}L)"
    # Entries are sorted by due time, and epochs by watermark, together in one descending order. In this order, the
    # epochs that come before an entry are the epochs whose watermark has reached the entry's due time. The earliest of
    # these epochs is the first epoch that has reached the due time.
    entries = f"SELECT _entry, {complete} AS _due, CAST(NULL AS bigint) AS _clock FROM ({numbered})"
    epochs = f"SELECT CAST(NULL AS bigint) AS _entry, _after AS _due, epoch AS _clock FROM {clocks}"
    done = f"SELECT *, MIN(_clock) OVER (ORDER BY _due DESC) AS _done FROM ({entries} UNION ALL {epochs})"
    found = f"SELECT _entry, _done FROM ({done}) WHERE _clock IS NULL AND _done IS NOT NULL"
    items = "e.* EXCEPT (_since), GREATEST(e._since, d._done) AS _since"
    return Query(f"SELECT {items} FROM ({numbered}) e JOIN ({found}) d ON e._entry = d._entry")


def _gaps(session: Session, join: Join, side: str, told: Relation, partners: Relation) -> Relation:
    """Return a relation with a row for each period in which an entry of a join's side is current without a partner."""
    ours, theirs = ("l", "r") if side == LEFT else ("r", "l")
    items = f"{ours}._entry, {ours}._since AS told, {ours}._until AS leaves, {theirs}._since, {theirs}._until"
    met = session.materialized(
        Query(f"SELECT {items} FROM {told} {ours} JOIN {partners} {theirs} ON {join_rows.meet(join)}")
    )
    begins = f"SELECT _entry, _since AS begins, _until AS leaves FROM {told} UNION "
    begins += f"SELECT _entry, _until AS begins, leaves FROM {met} WHERE _until > told"
    free = f"SELECT * FROM ({begins}) b WHERE begins < leaves AND NOT EXISTS (SELECT 1 FROM {met} m "
    free += "WHERE m._entry = b._entry AND m._since <= b.begins AND b.begins < m._until)"
    end = "MIN(CASE WHEN m._since > f.begins THEN m._since ELSE f.leaves END)"
    ended = f"SELECT f._entry, f.begins, LEAST(f.leaves, COALESCE({end}, f.leaves)) AS ends FROM ({free}) f "
    ended += f"LEFT JOIN {met} m ON m._entry = f._entry GROUP BY f._entry, f.begins, f.leaves"
    rows = f"SELECT e.* EXCEPT ({_STANDS}), g.begins AS _since, g.ends AS _until FROM {told} e JOIN ({ended}) g"
    return session.materialized(Query(f"{rows} ON e._entry = g._entry"))
