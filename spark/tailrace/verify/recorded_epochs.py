"""Read the recorded epochs of a stage: their clocks, their records, and the state after each epoch (rules T2, X2).

One fixed snapshot of each table is read, so a stream that is running at the same time does not affect the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tailrace.engines.arrivals import with_arrival
from tailrace.engines.batch.run_engine import run_with_fallback, session_for
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import BEGINS
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.commit.pins import pin_snapshots
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.lake.schema.contracts import PANE, PARTIAL, PRODUCTION
from tailrace.lake.schema.filters import EVERYTHING, Filter, above, at_most, equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.computation import NotKeptError
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union
from tailrace.model.logs.log import Log
from tailrace.model.windows.window_spans import touching_groups
from tailrace.sql.records.stage_records import changes, productions
from tailrace.sql.records.unions import union_records
from tailrace.sql.terms import Query, Relation, all_of, bracketed

AHEAD = 32
"""The number of epochs whose records are read with one query."""

D = TypeVar("D", bound=Definition)
T = TypeVar("T")


class ReplayError(TailraceError, ValueError):
    """Recorded epochs cannot be folded again or shown, or a table for the resulting rows cannot be created."""


@dataclass(frozen=True)
class ReplayRange:
    """The epochs to replay, and what to do with the replayed rows.

    If `first` is None, the replay begins with the first existing epoch; if `last` is None, it ends with the last
    existing epoch. `keep` names a new table for the rows. `watch` is called with the number of each epoch when the
    replay of this epoch begins.
    """

    first: int | None
    last: int | None
    keep: str | None
    watch: Callable[[int], None]


class Recording(Generic[D]):
    """The recorded epochs of one stage, up to the last epoch that the ledger has when the recording is opened.

    `snapshots` maps the name of each table that is read to the snapshot from which it is read.

    Raises `LakeError` if the stage has no ledger, `OtherDefinitionError` if the ledger belongs to a definition that
    computes something else, `NotKeptError` if the records that the stage reads are not kept, and `ReplayError` if the
    ledger has no epoch yet.
    """

    def __init__(self, lake: Lake, definition: D) -> None:
        check_definition(lake, definition)
        definition = with_set_aside(lake, definition)
        self.lake, self.definition, self.table = lake, definition, ledger_name(definition.name)
        for log in definition.log.parts:
            if isinstance(log, Productions) and not log.kept:
                raise NotKeptError(
                    f"what {log.of.name} produces is not kept, and is wanted to fold {definition.name} again: leave "
                    'productions="weak" out of it, under another name'
                )
        head = lake.head(self.table)
        self.last = head.number("epoch")
        if self.last < 0:
            raise ReplayError(f"{self.table} has no epoch yet: run a stream of the definition first")
        # A stream may make further commits after the ledger's last commit was read. These commits may belong to later
        # epochs, which are left out.
        self._commits = {
            epoch: commit for epoch, commit in epoch_commits(lake, self.table).items() if epoch <= self.last
        }
        history = commits(lake, self.table, head.snapshot)
        self._whole = history.whole
        # If a generation was built in a separate table and then replaced the ledger, the generation's first commit
        # belongs to the epoch of the replacement and has the clock of this epoch.
        self.built = self._whole and BEGINS in history.all[0].properties
        # An epoch's records are published before the epoch itself. The snapshots of the logs are read after the
        # snapshot of the ledger, so the logs' snapshots contain the records of all epochs in the ledger.
        logs = {_table_of(log) for log in definition.log.parts}
        self.snapshots = {self.table: head.snapshot} | {log: lake.head(log).snapshot for log in logs}

    def reads(self, first: int, last: int) -> list[tuple[str, Filter]]:
        """Return the tables that are read to fold the epochs `first` to `last` again, each with a filter."""
        logs = [(_table_of(log), _filter_of(log, first, last)) for log in self.definition.log.parts]
        return [(self.table, at_most("epoch", last)), *logs]

    @property
    def known(self) -> list[int]:
        """The recorded epochs whose clocks are known, in order."""
        return sorted(self._commits)

    @property
    def foldable(self) -> list[int]:
        """The epochs that can be folded again, in order.

        An epoch can be folded again if its own clock and the clock of the epoch before it are known.
        """
        return [epoch for epoch in self.known if self.begins(epoch) or epoch - 1 in self._commits]

    @property
    def first(self) -> int:
        """The first epoch that was folded into the ledger.

        The first epoch may be later than 0. For example, the log may have been landed for the first time together with
        logs that already had epochs. If a generation was built in a separate table and then replaced the ledger, the
        first epoch is the epoch after the replacement, which may not exist yet.
        """
        if not (self._whole and self._commits):
            return 0
        return min(self._commits) + (1 if self.built else 0)

    def begins(self, epoch: int) -> bool:
        """Return True if the ledger has no rows before an epoch."""
        return epoch == self.first and not self.built

    def check(self, epochs: Iterable[int], *, fold: bool = True) -> None:
        """Check that all given epochs can be folded again or, if `fold` is False, that their states can be shown.

        Raises `ReplayError` if an epoch cannot be folded again, or if its state cannot be shown.
        """
        there = self.foldable if fold else self.known
        epoch = next(iter(sorted({*epochs} - {*there})), None)
        if epoch is None:
            return
        if not 0 <= epoch <= self.last:
            raise ReplayError(f"epoch {epoch} is not in {self.table}: expected one of {_ranges(range(self.last + 1))}")
        what = "folded again" if fold else "shown"
        if epoch < self.first:
            begins = built_at_once(self.table, self.first - 1) if self.built else f"it begins with epoch {self.first}"
            raise ReplayError(f"epoch {epoch} of {self.table} cannot be {what}: {begins}")
        which = f"those that can are {_ranges(there)}" if there else "none of its epochs can"
        raise ReplayError(
            f"epoch {epoch} cannot be {what}: the snapshots of {self.table} that say its clock have expired; {which}"
        )

    def clock(self, epoch: int) -> Clock:
        """Return the recorded clock of an epoch."""
        return self._commits[epoch].clock

    def generation(self, epoch: int) -> int:
        """Return the generation of the windows that were opened in an epoch (rule V2)."""
        return self._commits[epoch].generation

    def bundles(self, session: Session, epochs: range) -> Iterator[Any]:
        """Yield the stage's input for each epoch: records of the log, or rows of the previous stage or definition."""
        for start in range(epochs.start, epochs.stop, AHEAD):
            some = range(start, min(start + AHEAD, epochs.stop))
            yield from session.bundles(self._records(session, some), some)

    def _records(self, session: Session, epochs: range) -> Query:
        """Return a query for the records of the given epochs."""
        log = self.definition.log
        if isinstance(log, Union):
            read = {member: bracketed(self._records_of(session, part, epochs)) for member, part in log.members.items()}
            text = union_records(log, read)
        else:
            text = self._records_of(session, log, epochs)
        return Query(f"SELECT * FROM ({text}) WHERE _epoch BETWEEN {epochs.start}L AND {epochs.stop - 1}L")

    def _records_of(self, session: Session, log: Log, epochs: range) -> Query:
        """Return a query for the records of the given epochs in a log that is not a union.

        The query may also return records of other epochs, which the caller must filter out.
        """
        where, table = _filter_of(log, epochs.start, epochs.stop - 1), _table_of(log)
        if isinstance(log, Arrivals):
            times = {epoch: self.clock(epoch).processing_time for epoch in epochs}
            return all_of(with_arrival(session, log, session.log(log.of, where, self.snapshots[table]), times))
        if isinstance(log, Panes):
            return changes(log.of, session.table(table, where, self.snapshots[table]))
        if isinstance(log, Productions):
            return productions(log.of, session.table(table, where, self.snapshots[table]))
        return all_of(session.log(log, where, self.snapshots[table]))

    def ledger(self, session: Session, where: Filter = EVERYTHING) -> Relation:
        """Return a relation of the ledger's rows; files in which no row matches `where` may be left out."""
        return session.table(self.table, where, self.snapshots[self.table])

    def handed(self, session: Session, epochs: range) -> set[int]:
        """Return the epochs after which a backfill handed over its open windows to the stream (rule X4)."""
        text = Query(
            f"SELECT DISTINCT epoch FROM {self.ledger(session, equal('kind', PARTIAL))} WHERE kind = '{PARTIAL}' "
            f"AND writer = 'backfill' AND epoch BETWEEN {epochs.start}L AND {epochs.stop - 1}L"
        )
        return {int(row["epoch"]) for row in session.rows(text)}

    def run(self, what: str, reads: Iterable[tuple[str, Filter]], work: Callable[[Session], T]) -> T:
        """Run `work` in a session that reads the pinned snapshots; the engine depends on the tables in `reads`.

        `what` names the kind of work, for example `replay`.
        """
        return run_with_fallback(self.lake, partial(self._ran, what, list(reads), work))

    def _ran(self, what: str, reads: list[tuple[str, Filter]], work: Callable[[Session], T], lake: Lake) -> T:
        with pin_snapshots(lake, self.snapshots), session_for(lake, self.definition, what, reads) as session:
            return work(session)


def built_at_once(table: str, epoch: int) -> str:
    """Return the reason why the epochs up to the one at which a generation was put in place are not folded again."""
    return (
        f"what {table} has of the epochs up to {epoch} was built at once, when its generation was put in place; begin "
        f"with epoch {epoch + 1}"
    )


def _table_of(log: Log) -> str:
    """Return the name of the table that has a log's records."""
    if isinstance(log, Arrivals):
        return log.of.name
    return ledger_name(log.of.name) if isinstance(log, Panes | Productions) else log.name


def _filter_of(log: Log, first: int, last: int) -> Filter:
    """Return a filter for the files of a log's table that may have records of the given epochs."""
    if isinstance(log, Panes | Productions):
        kind = PANE if isinstance(log, Panes) else PRODUCTION
        # The filter includes the epoch before `first`, because a backfill's corrections after that epoch are read with
        # epoch `first`.
        return every(equal("kind", kind), above("epoch", first - 2), at_most("epoch", last))
    return every(above("_epoch", first - 1), at_most("_epoch", last))


def _ranges(epochs: Iterable[int]) -> str:
    """Format sorted epochs as text, with consecutive epochs written as a range.

    >>> _ranges([0, 1, 2, 5, 7, 8])
    '0..2, 5, 7..8'
    """
    runs = touching_groups(epochs, lambda epoch: (epoch, epoch + 1))
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
