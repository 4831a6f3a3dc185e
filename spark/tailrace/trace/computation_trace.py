"""The trace of a record in a computation: all output rows for the record's key in the record's epoch."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.contracts import LATE, PRODUCTION, REJECTED
from tailrace.model.base.time import instant
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.trace.ledgers import Ledgers
from tailrace.trace.steps import LeftOut, Passed, Record, Row, Step


def through_computation(computation: Computation, record: Record, ledgers: Ledgers) -> Iterator[Step]:
    """Yield the outcomes of a record in a computation.

    The trace contains all output rows for the record's key in the record's epoch, because the ledger does not show
    which of these rows the record caused.
    """
    place = dict(zip(SOURCE, (record[name] for name in PLACE), strict=True))
    left = ledgers.rows(computation.name, (LATE, REJECTED), place)
    for row in left:
        if row["kind"] == LATE:
            yield Passed(computation.name, row["epoch"], row["behind"])
        else:
            yield LeftOut(computation.name, row["reason"], rejected=True)
    if left:
        return
    names = [*computation.key, *type(computation).produces]
    key = {name: record[name] for name in computation.key} | {"epoch": record["_epoch"]}
    rows = ledgers.rows(computation.name, (PRODUCTION,), key)
    for row in rows:
        values, made = {name: row[name] for name in names}, (row["epoch"], *(row[name] for name in SOURCE[1:]))
        yield Row(computation.name, values, instant(row[PANE_TIME]), row["epoch"], made)
    if not rows:
        yield Passed(computation.name)
