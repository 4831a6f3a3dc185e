"""What a backfill gives, and what can be wrong with one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.lake.catalog import Head
from tailrace.lake.runs import Run
from tailrace.model.errors import TailraceError
from tailrace.spark.correcting import As


class BackfillError(TailraceError, RuntimeError):
    """A backfill that cannot be done, or not yet; nothing was changed."""


@dataclass(frozen=True)
class Backfilled:
    """What a run did: windows fired again or for the first time, left alone, and taken back for good.

    Of windows still open, those whose state alone was put right count as changed, too.
    """

    run: Run
    changed: int
    untouched: int
    retracted: int
    seconds: float
    gave_way: Run | None = None


def done(run: Run, counts: Mapping[str, int], started: float, gave_way: Run | None = None) -> Backfilled:
    """What a run did that began at `started`, by the process's own clock."""
    totals = (counts["changed"], counts["untouched"], counts["retracted"])
    return Backfilled(run, *totals, time.perf_counter() - started, gave_way)


def as_of(run: Run, pinned: Head) -> As:
    """As what a run writes that read the log as of a ledger's head."""
    return As(run.run, run.generation, *(pinned.number(name) for name in ("epoch", "watermark", "processing_time")))
