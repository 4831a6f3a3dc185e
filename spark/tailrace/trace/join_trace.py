"""The trace of a record in a join: the rows that contain the record, both current rows and retracted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.model.base.time import instant
from tailrace.model.definition.join import Join
from tailrace.model.definition.record_steps import Place
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.trace.ledgers import Ledgers
from tailrace.trace.steps import LeftOut, Passed, Record, Row, Step


def through_join(join: Join, record: Record, ledgers: Ledgers) -> Iterator[Step]:
    """Follow a record through a join with the help of the ledger's rows that name the record."""
    if (reason := join.set_aside.get(Place.of(record))) is not None:
        yield LeftOut(join.name, reason, rejected=True)
        return
    found = ledgers.rows(join.name, (PRODUCTION, LATE), _naming(join, record))
    late = [row for row in found if row["kind"] == LATE and row["side"] == record["side"]]
    yield from (Passed(join.name, row["epoch"], row["behind"]) for row in late)
    rows = [row for row in found if row["kind"] == PRODUCTION]
    stand = _standing(join, rows)
    for row in sorted(rows, key=lambda row: row["epoch"]):
        if not row["retraction"]:
            values, place = {name: row[name] for name in join.results}, (row["epoch"], _pair_source(join, row), None)
            yield Row(join.name, values, instant(row[PANE_TIME]), row["epoch"], place, id(row) not in stand)
    if not late and not rows:
        yield Passed(join.name)


def _naming(join: Join, record: Record) -> dict[str, Any]:
    """Return the column values by which the rows of a join's ledger name a record of one of the join's sides."""
    side = record["side"]
    place = dict(zip(JOIN_PLACE[side], PLACE, strict=True))
    if not join.side(side).takes_back:
        return {name: record[own] for name, own in place.items()}
    # An answer has no position in a log, so its values identify it.
    return dict.fromkeys(place) | {name: record[name] for name in join.taken(side)}


def _pair_source(join: Join, row: Mapping[str, Any]) -> str:
    """Return the positions of a pair's records as text for the pair's readers.

    The text is formatted as in `sql.records.stage_records.pair_place`.
    """
    texts = (":".join("" if row[name] is None else str(row[name]) for name in names) for names in JOIN_PLACE.values())
    return "|".join(texts) + ("" if join.where is None else f"@{instant(row['window_start'])}")


def _standing(join: Join, rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the identities (`id`) of the rows in a join's ledger that were output and not retracted."""
    names = [*join.results, PANE_TIME, *(name for names in JOIN_PLACE.values() for name in names)]
    given: dict[tuple[Any, ...], list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["generation"], row["epoch"], not row["retraction"])):
        own = given.setdefault(tuple(row[name] for name in names), [])
        if not row["retraction"]:
            own.append(id(row))
        elif own:
            own.pop(0)
    return {one for some in given.values() for one in some}
