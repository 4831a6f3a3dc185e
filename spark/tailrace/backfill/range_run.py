"""A run over a range of one definition: record the run, find the differences, publish the corrections, end the run.

The subclasses of `RangeBackfill` contain the code that depends on the kind of definition: they decide which tables are
read for a range, and which runs the range needs. A run that fails is recorded as failed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyiceberg.manifest import DataFile

from tailrace.backfill.result import Backfilled, BackfillError
from tailrace.engines import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import FileChange, Head
from tailrace.lake.change.migration import widen
from tailrace.lake.commit.answers_merge import Follows, Unfollowed
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.range_replacement import COUNTS, EndedRun, RangeReplacement
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.filters import Filter, before, equal, every, since
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, text
from tailrace.model.definition.definition import Ranged, Windowless
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation

D = TypeVar("D", bound=Ranged)
W = TypeVar("W", bound=Windowless)


@dataclass(frozen=True)
class Found:
    """The differences that a run would write: a relation of windows or rows, and the numbers of differences by kind.

    The column `change` of the relation has the kind of each difference. In addition to a run's usual counts, `held`
    counts the windows of the range that have an answer. If the rows are already written, `files` lists their files,
    which are not in a table yet; `changes` is then None. `answers` are then the files of their answers, if the table of
    answers can take these files as they are.
    """

    changes: Relation | None
    counts: Mapping[str, int]
    files: tuple[DataFile, ...] = ()
    answers: tuple[DataFile, ...] = ()

    @property
    def different(self) -> Relation:
        """The windows or rows that differ, as a parenthesized query."""
        assert self.changes is not None, "the rows of the differences are written already"
        return Relation(f"(SELECT * FROM {self.changes} WHERE change <> 'same')")


class RangeRun(ABC, Generic[D]):
    """A run of one stage over `[first, last)` on the session's engine, with the methods that `RangeReplacement` needs.

    The run reads the log up to the epoch of `pinned`, a commit of the ledger. Unless a subclass states otherwise, no
    stream can change rows or windows of the range any more, so the run takes no lease (rule X4).
    """

    def __init__(self, session: Session, definition: D, first: int, last: int, pinned: Head) -> None:
        self.session, self.lake, self.definition = session, session.lake, definition
        self.first, self.last, self.pinned = first, last, pinned
        self.ledger = ledger_name(definition.name)

    def run(self, reason: str | None, dry_run: bool, inputs: str | None) -> Backfilled:
        """Execute the run, or only compute its changes if `dry_run` is True.

        `inputs` names the runs of other definitions whose results this run has read (`RunInputs`).
        """
        started, by, head = time.perf_counter(), self.session.choice, self.head()
        epoch = head.number("epoch")
        if dry_run:
            # A dry run has no entry in the table of runs, so this `Run` only describes the result.
            planned = Run("", "backfill", "dry_run", 0, self.first, self.last, self.definition.fingerprint, epoch)
            return _ended(EndedRun(planned, self.try_out(planned, head).counts), started, self.session)
        runs = Runs(self.lake, self.definition)
        run = runs.start(
            "backfill", self.first, self.last, log_epoch=epoch, reason=reason, engine=str(by), inputs=inputs
        )
        with closing(self.open_follower(f"backfill_{run.run}")) as self.follower:
            try:
                return _ended(self.replace_range(RangeReplacement(self.lake, runs, self), run), started, self.session)
            except Exception as error:
                runs.record_failure(run, error)
                raise

    def head(self) -> Head:
        """Return the commit of the ledger at which the run begins to read."""
        return self.pinned

    def replace_range(self, replacing: RangeReplacement[Found], run: Run) -> EndedRun:
        """Replace the range without a lease. Subclasses for ranges that a stream can still change override this
        method.
        """
        return replacing.replace_closed(run)

    def try_out(self, run: Run, head: Head) -> Found:
        """Compute the differences at a commit of the ledger, for a dry run."""
        return self.differences(run, head)

    def compute(self, run: Run, pinned: Head) -> Found:
        return self.differences(run, pinned)

    @abstractmethod
    def differences(self, run: Run, pinned: Head) -> Found:
        """Compute how the ledger's rows in the range differ from the results that are computed from the log.

        The log is read up to the epoch of the pinned commit.
        """

    @abstractmethod
    def rows(self, found: Found, written: BackfillVersion) -> Query:
        """Return SQL for the ledger rows that correct the differences."""

    def open_follower(self, owner: str) -> Follows:
        """Return a follower, which updates the table of answers from the ledger, if there is such a table."""
        return Unfollowed(self.lake, self.definition.name)

    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        if found.changes is None:
            branch.hold(FileChange(found.files), properties)
        else:
            self.session.write(self.rows(found, version_as_of(run, pinned)), branch, properties)

    def follow(self) -> int:
        return self.follower.follow()

    def published(self, found: Found, snapshot: int) -> None:
        self.follower.follow()

    def forget(self, found: Found) -> None:
        if found.changes is not None:
            self.session.free(found.changes)

    def count_changes(self, differences: Query, **conditions: str) -> Found:
        """Compute the differences now, and count them by kind.

        `conditions` has the SQL conditions of further counts, and of the usual counts if they are not by the column
        `change` alone.
        """
        usual = zip(COUNTS, ("change IN ('changed', 'new')", "change = 'same'", "change = 'gone'"), strict=True)
        counts = {name: Condition(condition) for name, condition in (dict(usual) | conditions).items()}
        counted = self.session.counted(differences, counts)
        return Found(counted.relation, counted.counts)


NOTHING: Mapping[str, int] = dict.fromkeys(COUNTS, 0)
"""The counts of a run that finds no differences."""


def found_new(files: Sequence[DataFile], answers: Sequence[DataFile] = (), **more: int) -> Found:
    """Return the differences of a range that had no rows, from the files of all its rows; `more` has further counts."""
    changed = sum(file.record_count for file in files)
    return Found(None, {**NOTHING, "changed": changed, **more}, tuple(files), tuple(answers))


class RowsRun(RangeRun[W]):
    """A run of a definition without windows; the definition's rows are only in its ledger."""

    def rows(self, found: Found, written: BackfillVersion) -> Query:
        return output_rows(self.definition).corrected(found.different, written)

    def compare(self, computed: Query, epoch: int) -> Found:
        """Compare computed rows with the rows that are current in the ledger at an epoch."""
        rows = output_rows(self.definition)
        held = rows.current(self.session.table(self.ledger, self.in_ledger()), self.within(), until=epoch)
        return self.count_changes(rows.differences(computed, held))

    def in_ledger(self) -> Filter:
        """Return a filter for the files of the ledger that may contain rows of the range."""
        bounds = [] if self.first <= BEGINNING else [since(PANE_TIME, self.first)]
        bounds += [] if self.last >= END_OF_TIME else [before(PANE_TIME, self.last)]
        return every(equal("kind", PRODUCTION), *bounds)

    def within(self) -> Condition:
        """Return the SQL condition that a row's event time is in the range."""
        terms = [] if self.first <= BEGINNING else [f"{PANE_TIME} >= {log_records.instant_term(self.first)}"]
        terms += [] if self.last >= END_OF_TIME else [f"{PANE_TIME} < {log_records.instant_term(self.last)}"]
        return Condition(" AND ".join(terms)) if terms else ALWAYS


class RangeBackfill(ABC, Generic[D]):
    """The backfill of the range `[first, last)` of a definition in one session.

    `stages` are the stages that are computed together. `asked` is True if the user requested this definition, and False
    if it is only backfilled because the requested definition reads it. If `alone` is True, the stages before the
    definition are left out.
    """

    def __init__(
        self, definition: D, lake: Lake, first: int, last: int, *, asked: bool = True, alone: bool = False
    ) -> None:
        self.definition, self.lake, self.first, self.last = definition, lake, first, last
        self.asked, self.alone = asked, alone
        self.stages: Sequence[Any] = (definition,) if alone else definition.stages

    def check(self) -> None:
        """Check that the range can be computed, and add columns that the tables lack; no rows are changed.

        Raises `BackfillError` if the range cannot be computed, and `OtherDefinitionError` if the tables belong to
        another definition.
        """
        if self.first >= self.last:
            raise BackfillError(
                f"the range from {text(self.first)} to {text(self.last)} is empty: pass a --to later than --from"
            )
        for stage in self.stages:
            widen(self.lake, stage)

    @abstractmethod
    def reads(self) -> list[tuple[str, Filter]]:
        """Return the tables to read for the range, each table with a filter.

        The filter selects the files of the table that may contain records that the range needs.
        """

    @abstractmethod
    def runs(self, session: Session) -> Sequence[tuple[D, Sequence[RangeRun[D]]]]:
        """Return each stage, in order, with the runs that the range needs for the stage.

        All of the returned runs have been checked, but no run has begun.
        """


def folded_head(lake: Lake, definition: Ranged) -> Head:
    """Return the latest commit of a definition's ledger.

    Raises `BackfillError` if no stream has folded an epoch yet.
    """
    head = lake.head(ledger_name(definition.name))
    if head.number("epoch") < 0:
        raise BackfillError(f"{definition.name}__ledger has no epoch yet: run a stream of the definition first")
    return head


def version_as_of(run: Run, pinned: Head) -> BackfillVersion:
    """Return the version of the rows that a run writes.

    The run has read the log up to the epoch of `pinned`, which is a commit of the ledger.
    """
    return BackfillVersion(
        run.run, run.generation, *(pinned.number(name) for name in ("epoch", "watermark", "processing_time"))
    )


def _ended(done: EndedRun, started: float, session: Session) -> Backfilled:
    """Return the result of a run; `started` is the time at which the run began, in seconds of `time.perf_counter`."""
    counts = {name: done.counts[name] for name in COUNTS}
    took = time.perf_counter() - started
    return Backfilled(done.run, **counts, seconds=took, engine=session.choice, gave_way=done.above)
