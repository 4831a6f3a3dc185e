"""Replay a definition without windows: compute the rows of recorded epochs again with SQL over the logs (law L3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tailrace.engines import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import built_until
from tailrace.lake.schema.filters import EVERYTHING
from tailrace.model.definition.definition import Windowless
from tailrace.sql.query_shapes import select_list
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import Query, Relation, bracketed, quoted
from tailrace.verify.recorded_epochs import Recording, ReplayError, ReplayRange, built_at_once
from tailrace.verify.row_diff import Comparison, Replayed, ReplayedColumns, RowCount, compare_rows

D = TypeVar("D", bound=Windowless)


class RowsAgain(NamedTuple):
    """Rows of one kind that were computed again; `terms` has an SQL term for each ledger column that is compared.

    `held` is the SQL condition that selects the corresponding rows in the ledger.
    """

    kind: str
    held: str
    again: Relation
    terms: Mapping[str, str]


def replayed_rows(
    definition: D,
    lake: Lake,
    asked: ReplayRange,
    again: Callable[[D, Session, int, int], Iterable[RowsAgain]],
) -> Replayed:
    """Compare the ledger's rows of some epochs with rows that are computed again.

    By default, all epochs of the ledger are compared. The function `again` computes the rows. The arguments of `again`
    are the definition as its streams fold it, a session, and the first and the last epoch.
    """
    if asked.keep is not None:
        raise ReplayError(f"{definition.name} is a {definition.kind_name}: only replayed windows are kept in a table")
    started, recording = time.perf_counter(), Recording(lake, definition)
    folded, latest = recording.definition, recording.last
    # The rows of a built generation are in the epochs of the build, which cannot be folded again one by one.
    begins = built_until(lake.table(recording.table)) + 1
    first = begins if asked.first is None else asked.first
    last = latest if asked.last is None else asked.last
    before = next((epoch for epoch in (asked.first, asked.last) if epoch is not None and epoch < begins), None)
    if before is not None:
        built = built_at_once(recording.table, begins - 1)
        raise ReplayError(f"epoch {before} of {recording.table} cannot be folded again: {built}")
    if (first > last and first != begins) or last > latest:
        raise ReplayError(f"{recording.table} has epochs 0 to {latest}: there are none from {first} to {last}")

    def work(session: Session) -> Replayed:
        found = list(again(folded, session, first, last))
        counts, differences = _compared(session, folded, recording.ledger(session), found)
        took = time.perf_counter() - started
        return Replayed(first, last, latest, counts, differences, took, session.choice)

    reads = [*log_records.tables_of_log(lake, definition.log, last), (recording.table, EVERYTHING)]
    return recording.run("replay", reads, work)


def _compared(session: Session, definition: Windowless, ledger: Relation, found: Sequence[RowsAgain]) -> Comparison:
    rows = output_rows(definition)
    names = {"kind", *(name for of in found for name in of.terms)}
    types = {name: type for name, type in rows.types.items() if name in names}
    held, again = list[str](), list[str]()
    for of in found:
        kind = {"kind": f"'{of.kind}'"}
        own = {name: quoted(name) for name in of.terms}
        held.append(f"SELECT {select_list(types, own | kind)} FROM {ledger} WHERE kind = '{of.kind}' AND {of.held}")
        again.append(f"SELECT {select_list(types, {**of.terms, **kind})} FROM {of.again}")
    columns = ReplayedColumns({name: quoted(name) for name in types}, rows.identity)
    sides = (bracketed(Query(" UNION ALL ".join(texts))) for texts in (held, again))
    counts, differences = compare_rows(session, columns, *sides)
    return {of.kind: RowCount(0, 0, 0) for of in found} | counts, differences
