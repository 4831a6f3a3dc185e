"""The results of backfills, and their error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from tailrace.engines.choose import EngineChoice
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.range_replacement import COUNTS, EndedRun
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.chain import Ranged
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.terms import Relation


class BackfillError(TailraceError, RuntimeError):
    """A backfill that cannot be done, or not yet; nothing was changed."""


@dataclass(frozen=True)
class Backfilled:
    """The result of a run: how many windows it fired (again or for the first time), left alone, and only retracted.

    Windows still open of which only the state was corrected count as changed, too. `gave_way` is the run that this one
    gave way to.
    """

    run: Run
    changed: int
    untouched: int
    retracted: int
    seconds: float
    engine: EngineChoice
    gave_way: Run | None = None


@dataclass(frozen=True)
class Found:
    """The differences that a run would write: a relation of its windows, each with its `change`, and counts by kind.

    Besides the counts that runs have, `held` counts the windows of the range that have an answer. Rows that are written
    already are in `files`, which no table lists yet; there is no relation of them.
    """

    changes: Relation | None
    counts: Mapping[str, int]
    files: tuple[DataFile, ...] = ()

    @property
    def different(self) -> Relation:
        """The windows that differ, as a query in brackets."""
        assert self.changes is not None, "the rows of the differences are written already"
        return Relation(f"(SELECT * FROM {self.changes} WHERE change <> 'same')")


def ended(done: EndedRun, started: float, engine: EngineChoice) -> Backfilled:
    """Sum up a run that began at `started`, in seconds of `time.perf_counter`, on an engine."""
    counts = {name: done.counts[name] for name in COUNTS}
    return Backfilled(done.run, **counts, seconds=time.perf_counter() - started, engine=engine, gave_way=done.above)


def draft(pipeline: Ranged, first: int, last: int, epoch: int) -> Run:
    """Make a run for a dry run, which is not entered in the runs table."""
    return Run("", "backfill", "dry_run", 0, first, last, pipeline.fingerprint, epoch)


def as_of(run: Run, pinned: Head) -> BackfillVersion:
    """Return the version of the rows that a run writes after it read the log as of a ledger's head."""
    return BackfillVersion(
        run.run, run.generation, *(pinned.number(name) for name in ("epoch", "watermark", "processing_time"))
    )
