"""The skeleton of a run over a range: a dry run, or a run that is entered in the runs table, computed and published.

A run that fails is noted as failed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from tailrace.backfill.result import Backfilled, BackfillError, Found, draft, ended
from tailrace.engines.batch import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.answers_merge import Follows, Unfollowed
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.range_replacement import COUNTS, EndedRun, Replacing
from tailrace.lake.commit.run_inputs import SeenRuns, as_text
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.filters import Filter, before, equal, every, since
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.chain import Ranged, Windowless
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.terms import ALWAYS, Condition, Query


class RangeRun(ABC):
    """A run of one stage over `[first, last)`, on the session's engine; it implements what `Replacing` calls."""

    def __init__(self, session: Session, definition: Ranged, first: int, last: int) -> None:
        self.session, self.lake, self.definition = session, session.lake, definition
        self.first, self.last = first, last

    def run(self, reason: str | None, dry_run: bool, seen: Mapping[str, SeenRuns]) -> Backfilled:
        """Do the run, or with `dry_run` compute what it would change.

        `seen` are the runs of what the stage reads that the run is sure to see.
        """
        started, by, head = time.perf_counter(), self.session.choice, self._head()
        epoch = head.number("epoch")
        if dry_run:
            planned = draft(self.definition, self.first, self.last, epoch)
            return ended(EndedRun(planned, self._tried(planned, head).counts), started, by)
        runs, inputs = Runs(self.lake, self.definition), as_text(seen)
        run = runs.start(
            "backfill", self.first, self.last, log_epoch=epoch, reason=reason, engine=str(by), inputs=inputs
        )
        self.follower = self._followed(f"backfill_{run.run}")
        try:
            return ended(self._replaced(Replacing(self.lake, runs, self), run), started, by)
        except Exception as error:
            runs.failed(run, error)
            raise
        finally:
            self.follower.close()

    def follow(self) -> int:
        return self.follower.follow()

    def forget(self, found: Found) -> None:
        if found.changes is not None:
            self.session.free(found.changes)

    @abstractmethod
    def compute(self, run: Run, pinned: Head) -> Found:
        """Compute the differences between the log and the ledger, as of the pinned commit's epoch."""

    @abstractmethod
    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        """Append the ledger rows of the differences to the branch."""

    @abstractmethod
    def published(self, found: Found, snapshot: int) -> None:
        """Bring the answers up to date with the published snapshot."""

    @abstractmethod
    def _followed(self, owner: str) -> Follows:
        """Return the follower that brings the answers up to date with the ledger."""

    @abstractmethod
    def _head(self) -> Head:
        """Return the head of the ledger as of which this run reads."""

    @abstractmethod
    def _tried(self, run: Run, head: Head) -> Found:
        """Compute the differences for a dry run."""

    @abstractmethod
    def _replaced(self, replacing: Replacing[Found], run: Run) -> EndedRun:
        """Replace the range, by the protocol for closed or for open windows."""


class ClosedRun(RangeRun):
    """A run of a range that no stream can reach any more, as of one head of the ledger: it takes no lease (rule X4)."""

    pinned: Head

    def _head(self) -> Head:
        return self.pinned

    def _tried(self, run: Run, head: Head) -> Found:
        return self._computed(head.number("epoch"))

    def _replaced(self, replacing: Replacing[Found], run: Run) -> EndedRun:
        return replacing.closed(run)

    def compute(self, run: Run, pinned: Head) -> Found:
        return self._computed(pinned.number("epoch"))

    @abstractmethod
    def _computed(self, epoch: int) -> Found:
        """Compute the differences between the log up to an epoch and the ledger."""


class RowsRun(ClosedRun):
    """A run of a definition without windows, whose rows stand in its ledger alone."""

    def __init__(self, session: Session, definition: Windowless, first: int, last: int, pinned: Head) -> None:
        super().__init__(session, definition, first, last)
        self.pinned, self.ledger = pinned, ledger_name(definition.name)

    def published(self, found: Found, snapshot: int) -> None:
        """Do nothing: there is no table of answers that follows the ledger."""

    def _followed(self, owner: str) -> Follows:
        return Unfollowed(self.lake, self.definition.name)

    def _in_ledger(self) -> Filter:
        """Return the filter of the ledger's files that hold rows of the range."""
        bounds = [] if self.first <= BEGINNING else [since(PANE_TIME, self.first)]
        bounds += [] if self.last >= END_OF_TIME else [before(PANE_TIME, self.last)]
        return every(equal("kind", PRODUCTION), *bounds)

    def _within(self) -> Condition:
        """Write the condition on the event times of the range."""
        terms = [] if self.first <= BEGINNING else [f"{PANE_TIME} >= {log_records.stamp(self.first)}"]
        terms += [] if self.last >= END_OF_TIME else [f"{PANE_TIME} < {log_records.stamp(self.last)}"]
        return Condition(" AND ".join(terms)) if terms else ALWAYS

    def _counted(self, differences: Query) -> Found:
        kinds = dict(zip(COUNTS, ("IN ('changed', 'new')", "= 'same'", "= 'gone'"), strict=True))
        counted = self.session.counted(differences, {name: Condition(f"change {kind}") for name, kind in kinds.items()})
        return Found(counted.relation, counted.counts)


def folded_head(lake: Lake, definition: Ranged) -> Head:
    """Return the head of a definition's ledger. Raises `BackfillError` where no stream has folded an epoch yet."""
    head = lake.head(ledger_name(definition.name))
    if head.number("epoch") < 0:
        raise BackfillError(f"{definition.name}__ledger has no epoch yet: run a stream of the definition first")
    return head


class WindowsRun(RangeRun):
    """A run of a pipeline's windows, whose answers follow the ledger."""

    def __init__(self, session: Session, pipeline: Pipeline, first: int, last: int) -> None:
        super().__init__(session, pipeline, first, last)
        self.pipeline = pipeline

    def _followed(self, owner: str) -> Follows:
        return self.session.follower(self.pipeline, owner)
