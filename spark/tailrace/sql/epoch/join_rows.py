"""A join's step in SQL: the pairs that an epoch's records make, what has no partner, what is late, and what is kept.

`model.step.join_step` says what each means. Entries are a side's records: the columns that go out by their names, `at`
in microseconds, the record's place, and the bounds of its window where the join has windows.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.lake.schema.contracts import LATE, PRODUCTION, join_contract, spark_type
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.join import JOIN_WINDOW, LEFT, RIGHT, SIDE, SIDES, Join
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.sql.query_shapes import filled
from tailrace.sql.records.assignment import NATIVE
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, quoted

Entries = Mapping[str, Relation]
"""A relation of entries for each side."""

JOIN_PLACE = {side: [f"{side}_{part}" for part in ("epoch", "partition", "offset")] for side in SIDES}
"""The ledger's columns with the places of a pair's records, in the order of `PLACE`."""


def entry_types(join: Join, side: str) -> dict[str, str]:
    """List the columns of a side's entries and their types."""
    own = {name: join.side(side).columns[column] for name, column in join.taken(side).items()}
    place = dict(zip(PLACE, ("bigint", "string", "bigint"), strict=True))
    windows = dict.fromkeys(JOIN_WINDOW, "bigint") if join.where is not None else {}
    return own | {"at": "bigint"} | place | windows


def entries(join: Join, records: Relation, side: str) -> Query:
    """Write the SQL of a side's entries, from a relation of the records of both sides (`Join.log`)."""
    items = [*map(quoted, join.taken(side)), f"UNIX_MICROS({PANE_TIME}) AS at", *PLACE]
    rows = Query(f"SELECT {', '.join(items)} FROM {records} WHERE {SIDE} = '{side}'")
    if join.where is None:
        return rows
    carried = ", ".join([*map(quoted, join.taken(side)), "at", *PLACE])
    placed = NATIVE[type(join.where)](join.where, carried, rows)
    start, end = f"GREATEST(window_start, {BEGINNING}L)", f"LEAST(window_end, {END_OF_TIME}L)"
    return Query(f"SELECT {carried}, {start} AS window_start, {end} AS window_end FROM ({placed})")


def too_late(join: Join, watermark: int | str) -> Condition:
    """Write the condition that an entry came too late at a watermark, a number or a term (`Join.too_late`)."""
    if join.where is not None:
        return closed(join, LEFT, watermark)
    return _behind(watermark, join.lateness)


def complete(join: Join, side: str, watermark: int | str) -> Condition:
    """Write the condition that every partner in time has come for an entry (`Join.complete`)."""
    if join.where is not None:
        return Condition(f"window_end <= {_written(watermark)}")
    return _behind(watermark, join.ahead(side))


def closed(join: Join, side: str, watermark: int | str) -> Condition:
    """Write the condition that an entry is not asked for any more (`Join.closed`)."""
    if join.where is not None:
        return Condition(f"LEAST(window_end + {join.lateness}L, {END_OF_TIME}L) <= {_written(watermark)}")
    return _behind(watermark, join.kept(side))


def oldest(join: Join, watermark: int) -> int | None:
    """Return an event time before which no record has to be kept at a watermark, in microseconds; None for no bound."""
    if join.where is not None:
        length = join.where.longest
        return None if length is None else max(BEGINNING, watermark - length - join.lateness)
    return max(BEGINNING, watermark - max(map(join.kept, SIDES)))


def given(join: Join, new: Entries, held: Entries, before: int, after: int) -> Query:
    """Write the SQL of all that an epoch gives, whose watermark went from `before` to `after`.

    `new` are the epoch's entries that are not late, `held` those of the epochs before that may have a partner yet.
    """
    every = {side: Relation(f"(SELECT * FROM {held[side]} UNION ALL SELECT * FROM {new[side]})") for side in SIDES}
    texts = [pairs(join, new[LEFT], every[RIGHT]), pairs(join, held[LEFT], new[RIGHT])]
    for side in filter(join.keeps, SIDES):
        done, was = complete(join, side, after), complete(join, side, before)
        fresh = Query(f"SELECT * FROM {new[side]} WHERE {done}")
        due = Query(f"SELECT * FROM {held[side]} WHERE {done} AND NOT ({was})")
        partners = every[RIGHT if side == LEFT else LEFT]
        texts.append(alone(join, side, Relation(f"({fresh} UNION ALL {due})"), partners))
    return Query(" UNION ALL ".join(texts))


def finished(join: Join, sides: Entries, watermark: int = END_OF_TIME) -> Query:
    """Write the SQL of all that a join gives of its entries by a watermark, none of which is late: the batch answer."""
    texts = [pairs(join, sides[LEFT], sides[RIGHT])]
    for side in filter(join.keeps, SIDES):
        rows = Relation(f"(SELECT * FROM {sides[side]} WHERE {complete(join, side, watermark)})")
        texts.append(alone(join, side, rows, sides[RIGHT if side == LEFT else LEFT]))
    return Query(" UNION ALL ".join(texts))


def pairs(join: Join, left: Relation, right: Relation) -> Query:
    """Write the SQL of the pairs of entries of the two sides: the results, `at`, and the places of both."""
    items = _items(join, {LEFT: "l", RIGHT: "r"}, "GREATEST(l.at, r.at)")
    return Query(f"SELECT {items} FROM {left} l JOIN {right} r ON {_meet(join)}")


def alone(join: Join, side: str, rows: Relation, partners: Relation) -> Query:
    """Write the SQL of a side's entries without a partner, as `pairs` has them."""
    ours, theirs = ("l", "r") if side == LEFT else ("r", "l")
    found = f"SELECT 1 FROM {partners} {theirs} WHERE {_meet(join)}"
    return Query(f"SELECT {_items(join, {side: ours}, f'{ours}.at')} FROM {rows} {ours} WHERE NOT EXISTS ({found})")


def of_epoch(join: Join, rows: Query, clock: Clock, generation: int) -> Query:
    """Write the SQL of the ledger rows of what an epoch gives."""
    own = {
        "kind": f"'{PRODUCTION}'",
        "generation": f"{generation}L",
        "epoch": f"{clock.epoch}L",
        "retraction": "false",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        "writer": "'stream'",
    }
    return Query(f"SELECT {_row(join, own | _carried(join))} FROM ({rows})")


def of_late(join: Join, side: str, late: Relation, clock: Clock, watermark: int) -> Query:
    """Write the SQL of the ledger rows of a side's entries that came too late, judged by a watermark."""
    place = dict(zip(JOIN_PLACE[side], PLACE, strict=True))
    windows = {name: f"TIMESTAMP_MICROS({name})" for name in JOIN_WINDOW} if join.where is not None else {}
    own = {
        "kind": f"'{LATE}'",
        "epoch": f"{clock.epoch}L",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        PANE_TIME: "TIMESTAMP_MICROS(at)",
        "side": f"'{side}'",
        "watermark": f"TIMESTAMP_MICROS({watermark}L)",
        "behind": f"{watermark}L - at",
    }
    taken = {name: quoted(name) for name in join.taken(side)}
    return Query(f"SELECT {_row(join, taken | windows | own | place)} FROM {late}")


def not_late(join: Join, side: str, rows: Relation, ledger: Relation) -> Query:
    """Write the SQL of entries without those that a ledger has as late."""
    place = zip(JOIN_PLACE[side], PLACE, strict=True)
    same = [f"l.{ours} <=> e.{theirs}" for ours, theirs in place]
    same += [f"l.{name} = TIMESTAMP_MICROS(e.{name})" for name in JOIN_WINDOW] if join.where is not None else []
    found = f"SELECT 1 FROM {ledger} l WHERE l.kind = '{LATE}' AND l.side = '{side}' AND {' AND '.join(same)}"
    return Query(f"SELECT * FROM {rows} e WHERE NOT EXISTS ({found})")


def row_types(join: Join) -> dict[str, str]:
    """List the columns of a join's ledger and their types."""
    return {name: spark_type(column.shape) for name, column in join_contract(join).columns.items()}


def _written(watermark: int | str) -> str:
    return watermark if isinstance(watermark, str) else f"{watermark}L"


def _behind(watermark: int | str, length: int) -> Condition:
    """Write the condition that an entry is further behind a watermark than a length; all are as the input has ended."""
    if isinstance(watermark, str):
        return Condition(f"({watermark} >= {END_OF_TIME}L OR at < {watermark} - {length}L)")
    return ALWAYS if watermark >= END_OF_TIME else Condition(f"at < {watermark - length}L")


def _meet(join: Join) -> str:
    """Write the condition that entries `l` and `r` belong together."""
    terms = [f"l.{quoted(name)} = r.{quoted(name)}" for name in join.keys]
    if join.where is not None:
        return " AND ".join([*terms, *(f"l.{name} = r.{name}" for name in JOIN_WINDOW)])
    before, after = join.reach
    return " AND ".join([*terms, f"r.at BETWEEN l.at - {before}L AND l.at + {after}L"])


def _items(join: Join, there: Mapping[str, str], at: str) -> str:
    """Write the select list of a pair, whose sides that are `there` have these names."""
    one, types = next(iter(there.values())), join.results
    items = [f"TIMESTAMP_MICROS({one}.{name}) AS {name}" for name in JOIN_WINDOW] if join.where is not None else []
    items += [f"{one}.{quoted(name)} AS {quoted(name)}" for name in join.keys]
    for side in SIDES:
        for name in join.own(side):
            value = f"{there[side]}.{quoted(name)}" if side in there else f"CAST(NULL AS {types[name]})"
            items.append(f"{value} AS {quoted(name)}")
        for ours, theirs, type in zip(JOIN_PLACE[side], PLACE, ("bigint", "string", "bigint"), strict=True):
            items.append(f"{f'{there[side]}.{theirs}' if side in there else f'CAST(NULL AS {type})'} AS {ours}")
    return ", ".join([*items, f"{at} AS at"])


def _carried(join: Join) -> dict[str, str]:
    places = {name: name for side in SIDES for name in JOIN_PLACE[side]}
    return {name: quoted(name) for name in join.results} | places | {PANE_TIME: "TIMESTAMP_MICROS(at)"}


def _row(join: Join, values: Mapping[str, str]) -> str:
    return filled(row_types(join), values)
