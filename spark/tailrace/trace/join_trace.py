"""The trace of a record in a join: the pairs that contain the record, including retracted pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.model.base.algebra import sort_key
from tailrace.model.base.time import instant
from tailrace.model.base.types import is_plain
from tailrace.model.definition.join import Join
from tailrace.model.definition.record_steps import Place
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.trace.ledgers import Ledgers
from tailrace.trace.steps import LeftOut, Passed, Record, Row, Step


def through_join(join: Join, record: Record, ledgers: Ledgers) -> Iterator[Step]:
    """Yield the outcomes of a record in a join, from the rows of the ledger that refer to the record."""
    if (reason := join.set_aside.get(Place.of(record))) is not None:
        yield LeftOut(join.name, reason, rejected=True)
        return
    named, types = _naming(join, record), join.log.columns
    # A filter of a table cannot compare nested values, nor NaN.
    simple = {name: value for name, value in named.items() if is_plain(types.get(name, "int")) and value == value}
    rows = ledgers.rows(join.name, (PRODUCTION, LATE), simple)
    found = [row for row in rows if all(sort_key(row[name]) == sort_key(value) for name, value in named.items())]
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
    """Return the columns and values that identify a record in the rows of a join's ledger."""
    side = record["side"]
    place = dict(zip(JOIN_PLACE[side], PLACE, strict=True))
    if not join.side(side).takes_back:
        return {name: record[own] for name, own in place.items()}
    # An answer of a pipeline has no position in a log, so its values identify it.
    return dict.fromkeys(place) | {name: record[name] for name in join.taken(side)}


def _pair_source(join: Join, row: Mapping[str, Any]) -> str:
    """Return the positions of a pair's two records as text. The readers of the join get this text as the pair's source.

    The text is formatted as in `sql.records.stage_records.pair_place`.
    """
    texts = (":".join("" if row[name] is None else str(row[name]) for name in names) for names in JOIN_PLACE.values())
    return "|".join(texts) + ("" if join.where is None else f"@{instant(row['window_start'])}")


def _standing(join: Join, rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the Python identities (`id`) of the given rows that were output and not retracted."""
    names = [*join.results, PANE_TIME, *(name for names in JOIN_PLACE.values() for name in names)]
    given: dict[Any, list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["generation"], row["epoch"], not row["retraction"])):
        own = given.setdefault(sort_key([row[name] for name in names]), [])
        if not row["retraction"]:
            own.append(id(row))
        elif own:
            own.pop(0)
    return {one for some in given.values() for one in some}
