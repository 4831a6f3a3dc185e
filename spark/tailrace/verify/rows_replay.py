"""The replay of what has no windows: one query over the logs finds again what the recorded epochs gave (law L3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from tailrace.engines import log_records
from tailrace.engines.batch.run_engine import here_first, session_for
from tailrace.engines.choose import EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.pins import pinned
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.lake.schema.filters import EVERYTHING
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import Windowless
from tailrace.sql.terms import Relation
from tailrace.verify.recorded_epochs import ReplayError
from tailrace.verify.row_diff import RowCount

Compared: TypeAlias = tuple[dict[str, RowCount], tuple[Mapping[str, Any], ...]]
"""Counts by the ledger's kinds of rows, and a few rows that differ."""

D = TypeVar("D", bound=Windowless)


@dataclass(frozen=True)
class RowsReplayed:
    """The result of a replay of the epochs `first` to `last`: counts by the ledger's kinds of rows.

    `latest` is the last epoch of the ledger, `quoted` are a few rows that differ.
    """

    first: int
    last: int
    latest: int
    counts: Mapping[str, RowCount]
    quoted: tuple[Mapping[str, Any], ...]
    seconds: float
    engine: EngineChoice

    @property
    def ok(self) -> bool:
        """Whether the replay gave exactly the ledger's rows."""
        return all(count.ledger == count.replay == count.same for count in self.counts.values())


def replayed_rows(
    lake: Lake,
    definition: D,
    first: int | None,
    last: int | None,
    compared: Callable[[Session, Relation, int, int, D], Compared],
) -> RowsReplayed:
    """Compare the rows of epochs `first` to `last` with the ledger's; by default from its first epoch to its last.

    `compared` gets a session, the ledger, the epochs, and the definition as its streams fold it. Raises `ReplayError`
    where an epoch is not in the ledger, and `OtherDefinitionError` where the ledger is another definition's.
    """
    check_definition(lake, definition)
    folded = with_set_aside(lake, definition)
    ledger = ledger_name(definition.name)
    head = lake.head(ledger)
    latest = head.number("epoch")
    begin, end = 0 if first is None else first, latest if last is None else last
    if begin > end or end > latest:
        raise ReplayError(f"{ledger} has epochs 0 to {latest}: there are none from {begin} to {end}")

    def run(lake: Lake) -> RowsReplayed:
        started = time.perf_counter()
        reads = [*log_records.read(lake, definition.log, end), (ledger, EVERYTHING)]
        with session_for(lake, definition, "replay", reads) as session, pinned(lake, {ledger: head.snapshot}):
            counts, differ = compared(session, session.table(ledger, snapshot=head.snapshot), begin, end, folded)
            return RowsReplayed(begin, end, latest, counts, differ, time.perf_counter() - started, session.choice)

    return here_first(lake, run)
