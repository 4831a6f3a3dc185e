"""Write a join's step in SQL: pairs of records, records without a partner, late records, and the entries to keep.

`model.step.join_step` is the reference for this step. An entry is a record of one side of the join. An entry has the
columns of the join's output, the event time `_at` in microseconds, and the record's position. If the join has windows,
an entry also has the bounds of its window. A record that can be retracted has no position. Such a record is identified
only by its values, so two entries may be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import LATE, REJECTED
from tailrace.lake.schema.join_tables import join_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import JOIN_WINDOW, LEFT, RIGHT, SIDE, SIDES
from tailrace.model.logs.log import PANE_TIME, PLACE, SIGN
from tailrace.sql.epoch.rejected_rows import epoch_columns, production_columns, rejected_rows
from tailrace.sql.query_shapes import instants, select_list
from tailrace.sql.records.assignment import NATIVE
from tailrace.sql.records.selections import FAILED, set_aside
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, Sql, all_of, bracketed, quoted

Entries = Mapping[str, Relation]
"""A mapping from each side of the join to a relation with that side's entries."""


@dataclass(frozen=True)
class EpochEntries:
    """The entries of an epoch: entries held from earlier epochs, retracted entries, and added entries.

    `held` are the entries from before the epoch, and `new` are the added entries. `stay` are the held entries that the
    epoch does not retract. `gone` are the retracted entries. If the records of a side cannot be retracted, `gone` has
    no entry for this side.
    """

    held: Entries
    gone: Entries
    stay: Entries
    new: Entries

    @property
    def now(self) -> Entries:
        """The entries of each side after the epoch."""
        return {side: Relation(f"(SELECT * FROM {self.stay[side]} UNION ALL SELECT * FROM {self.new[side]})")
                for side in SIDES}  # fmt: skip


_PLACE = dict(zip(PLACE, ("bigint", "string", "bigint"), strict=True))


def entry_types(join: Join, side: str) -> dict[str, str]:
    """Return the columns of the entries of one side, with their types."""
    own = {name: join.side(side).columns[column] for name, column in join.taken(side).items()}
    windows = dict.fromkeys(JOIN_WINDOW, "bigint") if join.where is not None else {}
    return own | {"_at": "bigint"} | _PLACE | windows


def entries(join: Join, records: Relation, side: str, also: Mapping[str, str] = MappingProxyType({})) -> Query:
    """Return the query for one side's entries, from a relation with the records of both sides (`Join.log`).

    `also` maps the names of further columns to SQL expressions over a record's columns. If the side's records can be
    retracted, its entries also have the column `SIGN`, from which `added_entries` and `retracted_entries` compute the
    net changes.
    """
    signed = join.side(side).takes_back
    also = {**also, SIGN: SIGN} if signed else also
    # A record that can be retracted is identified by its values, not by its position, because its retraction arrives in
    # another epoch and therefore has another position.
    place = [f"CAST(NULL AS {type}) AS {name}" for name, type in _PLACE.items()] if signed else list(PLACE)
    more = (f"{term} AS {name}" for name, term in also.items())
    at, reals = f"UNIX_MICROS({PANE_TIME})", join.reals(side)
    own = {name: Sql().unsigned_zeros(quoted(name), reals.get(name, "")) for name in join.taken(side)}
    of_side = f"FROM {records} WHERE {SIDE} = '{side}'"
    if join.set_aside:
        of_side += f" AND {set_aside(join.set_aside)} IS NULL"
    if join.where is None:
        items = [f"{term} AS {quoted(name)}" for name, term in own.items()]
        return Query(f"SELECT {', '.join([*items, f'{at} AS _at', *place, *more])} {of_side}")
    # The columns are renamed temporarily. Without this, a column might be named `at`, the name that the SQL of windows
    # uses for the event time.
    apart = {name: f"_own_{number}" for number, name in enumerate(own)}
    items = [*(f"{own[name]} AS {other}" for name, other in apart.items()), f"{at} AS at", *place, *more]
    carried = ", ".join([*apart.values(), "at", *PLACE, *also])
    placed = NATIVE[type(join.where)](join.where, carried, Query(f"SELECT {', '.join(items)} {of_side}"))
    named = ", ".join([*(f"{other} AS {quoted(name)}" for name, other in apart.items()), "at AS _at", *PLACE, *also])
    start, end = f"GREATEST(window_start, {BEGINNING}L)", f"LEAST(window_end, {END_OF_TIME}L)"
    return Query(f"SELECT {named}, {start} AS window_start, {end} AS window_end FROM ({placed})")


def added_entries(join: Join, side: str, rows: Relation) -> Query:
    """Return the query for the entries that `rows` add.

    If `rows` also retract an entry, the retraction cancels one addition of this entry. Equal entries are repeated as
    often as they are added.
    """
    return all_of(rows) if not join.side(side).takes_back else _less(join, side, rows, f"{SIGN} > 0", f"{SIGN} < 0")


def retracted_entries(join: Join, side: str, rows: Relation) -> Query:
    """Return the query for the entries that `rows` retract.

    Call this function only for a side whose records can be retracted. If `rows` also add an entry, the addition cancels
    one retraction of this entry.
    """
    return _less(join, side, rows, f"{SIGN} < 0", f"{SIGN} > 0")


def _less(join: Join, side: str, rows: Relation, which: str, less: str) -> Query:
    items = ", ".join(map(quoted, entry_types(join, side)))
    return Query(f"SELECT {items} FROM {rows} WHERE {which} EXCEPT ALL SELECT {items} FROM {rows} WHERE {less}")


def remaining_entries(join: Join, side: str, held: Relation, gone: Relation) -> Query:
    """Return the query for the held entries, except the entries that the epoch retracts."""
    items = ", ".join(map(quoted, entry_types(join, side)))
    return Query(f"SELECT {items} FROM {held} EXCEPT ALL SELECT {items} FROM {gone}")


def too_late(join: Join, watermark: int | str) -> Condition:
    """Return the condition that an entry is late (`Join.too_late`).

    `watermark` is a number of microseconds, or an SQL expression.
    """
    if join.where is not None:
        return closed(join, LEFT, watermark)
    return _behind(watermark, join.lateness)


def complete(join: Join, side: str, watermark: int | str) -> Condition:
    """Return the condition that an entry without a partner may be output, given the watermark (`Join.complete`)."""
    if join.unmatched == "tell":
        return ALWAYS
    if join.where is not None:
        return Condition(f"window_end <= {_written(watermark)}")
    return _behind(watermark, join.ahead(side))


def settled(join: Join, side: str, watermark: int | str) -> Condition:
    """Return the condition that an entry can no longer gain or lose a partner at a watermark (`Join.settled`)."""
    if join.where is not None:
        return closed(join, side, watermark)
    return _behind(watermark, join.ahead(side) + join.lateness)


def closed(join: Join, side: str, watermark: int | str) -> Condition:
    """Return the condition that the join no longer needs an entry, given the watermark (`Join.closed`)."""
    if join.where is not None:
        return Condition(f"LEAST(window_end + {join.lateness}L, {END_OF_TIME}L) <= {_written(watermark)}")
    return _behind(watermark, join.kept(side))


def oldest(join: Join, watermark: int) -> int | None:
    """Return the earliest event time, in microseconds, of the records that the join may still need at `watermark`.

    Returns None if the join may need records of any event time.
    """
    if join.where is not None:
        length = join.where.longest
        return None if length is None else max(BEGINNING, watermark - length - join.lateness)
    return max(BEGINNING, watermark - max(map(join.kept, SIDES)))


def given_rows(join: Join, entries: EpochEntries, before: int, after: int) -> Query:
    """Return the query for the rows that an epoch outputs or retracts.

    The epoch moves the watermark from `before` to `after`. Column `retraction` marks the retracted rows. `entries` must
    not contain late records.
    """
    held, gone, stay, new, now = entries.held, entries.gone, entries.stay, entries.new, entries.now
    texts = {False: [pairs(join, new[LEFT], now[RIGHT]), pairs(join, stay[LEFT], new[RIGHT])], True: list[Query]()}
    if join.left.takes_back:
        texts[True].append(pairs(join, gone[LEFT], held[RIGHT]))
    if join.right.takes_back:
        texts[True].append(pairs(join, stay[LEFT], gone[RIGHT]))
    for side in filter(join.keeps, SIDES):
        other = RIGHT if side == LEFT else LEFT
        done, was = complete(join, side, after), complete(join, side, before)
        fresh = Query(f"SELECT * FROM {new[side]} WHERE {done}")
        due = Query(f"SELECT * FROM {stay[side]} WHERE {done} AND NOT ({was})")
        texts[False].append(unmatched_rows(join, side, Relation(f"({fresh} UNION ALL {due})"), now[other]))
        if join.takes_back:
            told = f"{was} AND NOT ({settled(join, side, before)})"
            texts[True].append(unmatched_rows(join, side, _met(join, side, stay[side], new[other], told), held[other]))
        if join.side(other).takes_back:
            texts[False].append(unmatched_rows(join, side, _met(join, side, stay[side], gone[other], told), now[other]))
        if join.side(side).takes_back:
            there = Relation(f"(SELECT * FROM {gone[side]} WHERE {told})")
            texts[True].append(unmatched_rows(join, side, there, held[other]))
    marked = ((f"{taken}".lower(), text) for taken, some in texts.items() for text in some)
    return Query(" UNION ALL ".join(f"SELECT *, {taken} AS retraction FROM ({text})" for taken, text in marked))


def _met(join: Join, side: str, rows: Relation, partners: Relation, told: str) -> Relation:
    """Return a relation of one side's entries that meet the condition `told` and have a partner in `partners`."""
    ours, theirs = ("l", "r") if side == LEFT else ("r", "l")
    found = f"SELECT 1 FROM {partners} {theirs} WHERE {meet(join)}"
    return Relation(f"(SELECT * FROM (SELECT * FROM {rows} WHERE {told}) {ours} WHERE EXISTS ({found}))")


def finished(join: Join, sides: Entries, watermark: int = END_OF_TIME) -> Query:
    """Return the query for all rows that a join outputs up to a watermark, from entries that are not late."""
    texts = [pairs(join, sides[LEFT], sides[RIGHT])]
    for side in filter(join.keeps, SIDES):
        rows = Relation(f"(SELECT * FROM {sides[side]} WHERE {complete(join, side, watermark)})")
        texts.append(unmatched_rows(join, side, rows, sides[RIGHT if side == LEFT else LEFT]))
    return Query(" UNION ALL ".join(texts))


def pairs(join: Join, left: Relation, right: Relation, also: str = "") -> Query:
    """Return the query for the pairs of entries: the join's results, `_at`, and the positions of both records.

    `also` are further select-list items; in these items, the two entries have the aliases `l` and `r`.
    """
    items = _items(join, {LEFT: "l", RIGHT: "r"}, "GREATEST(l._at, r._at)")
    return Query(f"SELECT {items}{also} FROM {left} l JOIN {right} r ON {meet(join)}")


def unmatched_rows(join: Join, side: str, rows: Relation, partners: Relation | None, also: str = "") -> Query:
    """Return the query for a side's entries that have no partner among `partners`, with the columns of `pairs`.

    If `partners` is None, the query returns all entries of the side.
    """
    ours, theirs = ("l", "r") if side == LEFT else ("r", "l")
    text = f"SELECT {_items(join, {side: ours}, f'{ours}._at')}{also} FROM {rows} {ours}"
    if partners is None:
        return Query(text)
    return Query(f"{text} WHERE NOT EXISTS (SELECT 1 FROM {partners} {theirs} WHERE {meet(join)})")


def output(join: Join, rows: Query, *also: str) -> Query:
    """Return the query that converts rows of `finished` to columns of the ledger: results, event time and positions.

    `also` are further columns of `rows` to select.
    """
    places = [name for side in SIDES for name in JOIN_PLACE[side]]
    items = [*map(quoted, join.results), f"TIMESTAMP_MICROS(_at) AS {PANE_TIME}", *places, *also]
    return Query(f"SELECT {', '.join(items)} FROM ({rows})")


def no_entries(join: Join, records: Relation, side: str) -> Query:
    """Return the query for an empty table with the columns of a side's entries."""
    return Query(f"SELECT * FROM ({added_entries(join, side, bracketed(entries(join, records, side)))}) WHERE false")


def epoch_rows(
    join: Join, bundle: Relation, held: Entries, name: Callable[[str, str, Query], Relation], clock: Clock, before: int,
    generation: int,
) -> tuple[Query, EpochEntries]:  # fmt: skip
    """Return two results for an epoch: the query for its ledger rows, and the epoch's entries.

    The rows are computed from the records of both sides and the entries held from earlier epochs. `name` is a function
    that makes a relation from a query for entries. The arguments of `name` are a side, the kind of the entries (`came`,
    `new`, `gone` or `stay`), and the query. `before` is the watermark before the epoch, which decides whether a record
    is late.
    """
    late, texts = too_late(join, before), list[Query]()
    gone, stay, new = dict[str, Relation](), dict(held), dict[str, Relation]()
    for side in SIDES:
        came = name(side, "came", entries(join, bundle, side))
        good, bad = (Relation(f"(SELECT * FROM {came} WHERE {which})") for which in (f"NOT ({late})", late))
        texts.append(of_late(join, side, bad, clock, before))
        if join.set_aside:
            texts.append(of_set_aside(join, side, bundle, clock))
        new[side] = name(side, "new", added_entries(join, side, good))
        if join.side(side).takes_back:
            gone[side] = name(side, "gone", retracted_entries(join, side, good))
            stay[side] = name(side, "stay", remaining_entries(join, side, held[side], gone[side]))
    found = EpochEntries(held, gone, stay, new)
    texts.append(of_epoch(join, given_rows(join, found, before, clock.watermark), clock, generation))
    return Query(" UNION ALL ".join(texts)), found


def of_epoch(join: Join, rows: Query, clock: Clock, generation: int) -> Query:
    """Return the query for an epoch's ledger rows, from the rows that the epoch outputs or retracts (`given_rows`)."""
    own = production_columns(clock, generation, "retraction")
    return Query(f"SELECT {select_list(row_types(join), own | _carried(join))} FROM ({rows})")


def of_late(join: Join, side: str, late: Relation, clock: Clock, watermark: int) -> Query:
    """Return the query for the ledger rows about a side's late entries.

    `watermark` is the watermark at which the entries were too late.
    """
    place = dict(zip(JOIN_PLACE[side], PLACE, strict=True))
    windows = instants(*JOIN_WINDOW) if join.where is not None else {}
    own = epoch_columns(LATE, clock) | {
        PANE_TIME: "TIMESTAMP_MICROS(_at)",
        "side": f"'{side}'",
        "watermark": f"TIMESTAMP_MICROS({watermark}L)",
        "behind": f"{watermark}L - _at",
    }
    taken = {name: quoted(name) for name in join.taken(side)}
    return Query(f"SELECT {select_list(row_types(join), taken | windows | own | place)} FROM {late}")


def set_aside_of(join: Join, records: Relation) -> Query:
    """Return the query for the set-aside records of both sides; each row has the reason (rule X7).

    A stream sets a record aside if every epoch that contains the record fails.
    """
    marked = f"SELECT *, {set_aside(join.set_aside)} AS {FAILED} FROM {records}"
    return Query(f"SELECT * FROM ({marked}) WHERE {FAILED} IS NOT NULL")


def of_set_aside(join: Join, side: str, records: Relation, clock: Clock) -> Query:
    """Return the query for the ledger rows about a side's set-aside records, which made every epoch fail (rule X7).

    `records` has the records of both sides.
    """
    of_side = Relation(f"({set_aside_of(join, records)}) WHERE {SIDE} = '{side}'")
    own = {name: quoted(name) for name in join.taken(side)} | dict(zip(JOIN_PLACE[side], PLACE, strict=True))
    return rejected_rows(row_types(join), of_side, clock, own | {PANE_TIME: PANE_TIME, "side": f"'{side}'"})


def rejected(ledger: Relation) -> Query:
    """Return the query for a ledger's rejected records; each row has a record's side, position and reason."""
    places = (f"IF(side = '{LEFT}', {left}, {right}) AS {name}"
              for name, left, right in zip(PLACE, *(JOIN_PLACE[side] for side in SIDES), strict=True))  # fmt: skip
    items = ", ".join([f"side AS {SIDE}", *places, f"reason AS {FAILED}"])
    return Query(f"SELECT {items} FROM {ledger} WHERE kind = '{REJECTED}'")


def not_late(join: Join, side: str, rows: Relation, ledger: Relation) -> Query:
    """Return the query for a side's entries, except the entries that the ledger lists as late."""
    place = zip(JOIN_PLACE[side], PLACE, strict=True)
    same = [f"l.{ours} <=> e.{theirs}" for ours, theirs in place]
    same += [f"l.{name} = TIMESTAMP_MICROS(e.{name})" for name in JOIN_WINDOW] if join.where is not None else []
    found = f"SELECT 1 FROM {ledger} l WHERE l.kind = '{LATE}' AND l.side = '{side}' AND {' AND '.join(same)}"
    return Query(f"SELECT * FROM {rows} e WHERE NOT EXISTS ({found})")


def row_types(join: Join) -> dict[str, str]:
    """Return a mapping from the columns of a join's ledger to their types.

    The column `reason` is included only if a stream has set records of the join aside (rule X7). A ledger that was
    created by an earlier version has no column `reason`. Such a ledger still accepts the rows of a join without
    set-aside records.
    """
    types = join_contract(join).types
    return types if join.set_aside else {name: type for name, type in types.items() if name != "reason"}


def _written(watermark: int | str) -> str:
    return watermark if isinstance(watermark, str) else f"{watermark}L"


def _behind(watermark: int | str, length: int) -> Condition:
    """Return the condition that an entry's event time is more than `length` before a watermark.

    If the watermark is at the end of time, the condition holds for all entries.
    """
    if isinstance(watermark, str):
        return Condition(f"({watermark} >= {END_OF_TIME}L OR _at < {watermark} - {length}L)")
    return ALWAYS if watermark >= END_OF_TIME else Condition(f"_at < {watermark - length}L")


def meet(join: Join) -> str:
    """Return the condition that the entries `l` and `r` are a pair."""
    terms = [f"l.{quoted(name)} = r.{quoted(name)}" for name in join.keys]
    if join.where is not None:
        return " AND ".join([*terms, *(f"l.{name} = r.{name}" for name in JOIN_WINDOW)])
    before, after = join.reach
    return " AND ".join([*terms, f"r._at BETWEEN l._at - {before}L AND l._at + {after}L"])


def _items(join: Join, there: Mapping[str, str], at: str) -> str:
    """Return the select list for an output row of the join.

    `there` maps a side to the name that the side's record has in the query. If `there` lacks a side, the row has no
    record of this side, and the columns of this side are null.
    """
    one, types = next(iter(there.values())), join.results
    items = [f"TIMESTAMP_MICROS({one}.{name}) AS {name}" for name in JOIN_WINDOW] if join.where is not None else []
    items += [f"{one}.{quoted(name)} AS {quoted(name)}" for name in join.keys]
    for side in SIDES:
        for name in join.own(side):
            value = f"{there[side]}.{quoted(name)}" if side in there else f"CAST(NULL AS {types[name]})"
            items.append(f"{value} AS {quoted(name)}")
        for ours, (theirs, type) in zip(JOIN_PLACE[side], _PLACE.items(), strict=True):
            items.append(f"{f'{there[side]}.{theirs}' if side in there else f'CAST(NULL AS {type})'} AS {ours}")
    return ", ".join([*items, f"{at} AS _at"])


def _carried(join: Join) -> dict[str, str]:
    places = {name: name for side in SIDES for name in JOIN_PLACE[side]}
    return {name: quoted(name) for name in join.results} | places | {PANE_TIME: "TIMESTAMP_MICROS(_at)"}
