"""Replace the answers in a range of windows with a run's results, while a stream and other runs may be running.

A run's commit names the range that the run replaced (rules V4 and X4). The run computes the difference between its
results and the answers at one snapshot of the ledger. The difference is correct only if no other run has replaced a
part of the range since this snapshot. So before each commit, the run searches the ledger's commits, up to main's
current snapshot, for other runs in the range. The run's own commit is based on this current snapshot, and fails if main
has moved. If another run has replaced a part of the range, the run computes the difference again. The engine (DuckDB or
Spark) computes the difference and writes its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tailrace.lake.catalog.events import Outcome, Publication
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import BACKFILLED, Commit, Head, Tables, head_of_commits, repeated_properties
from tailrace.lake.commit.archive import ArchivedCommit
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.lease import PATIENCE, Lease, under_borrowed_lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name

RUN = "run"
"""The name of the property that stores the id of the run that made a commit."""

COUNTS = ("changed", "untouched", "retracted")
"""The kinds of windows that a run counts.

A window is counted as changed (it fired for the first time or again), as untouched, or as only retracted.
"""


class RangeDifference(Protocol):
    """The rows that a run has to write. `counts` has the number of windows of each kind in `COUNTS`."""

    @property
    def counts(self) -> Mapping[str, int]: ...


D = TypeVar("D", bound=RangeDifference)


class ReplacingEngine(Protocol[D]):
    """The operations of an engine that compute a run's difference and write its rows."""

    def follow(self) -> int:
        """Bring the answers up to date with the ledger; return the ledger snapshot up to which the answers are
        current.
        """

    def compute(self, run: Run, pinned: Head) -> D:
        """Compute, for the run's range, how the results that are computed from the log differ from the answers.

        `pinned` is a commit of the ledger, and the log is read up to the epoch of this commit.
        """

    def write(self, found: D, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        """Append the rows of a difference to a branch, in a commit with these properties."""

    def published(self, found: D, snapshot: int) -> None:
        """Bring the answers up to date after the difference was committed to the ledger as snapshot `snapshot`."""

    def forget(self, found: D) -> None:
        """Release the resources of a computed difference."""


class ReplacedRange(NamedTuple):
    """The run that made a commit, and the range of window timestamps that the commit replaced, in microseconds."""

    run: str
    generation: int
    first: int
    last: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ReplacedRange | None:
        """Read the run and its range from a commit's properties; return None if no run made the commit.

        >>> ReplacedRange.of({BACKFILLED: "e5 7 0 60"}), ReplacedRange.of({})
        (ReplacedRange(run='e5', generation=7, first=0, last=60), None)
        """
        if BACKFILLED not in properties:
            return None
        run, *numbers = properties[BACKFILLED].split()
        return cls(run, *map(int, numbers))

    def is_above(self, run: Run) -> bool:
        """Return True if a run of a higher generation than `run` replaced this range, and the ranges of both runs
        overlap.
        """
        return self.generation > run.generation and run.overlaps(self.first, self.last)


def replacing_runs(commits: Iterable[Commit | ArchivedCommit]) -> set[str]:
    """Return the ids of the runs that made any of the given commits."""
    return {made.run for commit in commits if (made := ReplacedRange.of(commit.properties)) is not None}


@dataclass(frozen=True)
class EndedRun:
    """The result of a run: its last row in the table of runs, and its counts of windows.

    If this run gave way to another run of a higher generation, `above` is that other run. Otherwise, `above` is None.
    """

    run: Run
    counts: Mapping[str, int]
    above: Run | None = None


class RangeReplacement(Generic[D]):
    """Replaces the answers in a range of windows for one run, by the protocol of this module."""

    def __init__(self, lake: Tables, runs: Runs, engine: ReplacingEngine[D]) -> None:
        self.lake, self.runs, self.engine = lake, runs, engine
        self.ledger = ledger_name(runs.pipeline.name)

    def replace_closed(self, run: Run) -> EndedRun:
        """Replace a range of closed windows without a lease, because no stream can change closed windows (rule X4)."""
        branch = Branch(self.lake, self.ledger, f"backfill_{run.run}")
        try:
            return self._until_it_holds(run, partial(self._beside, branch))
        finally:
            branch.drop()

    def replace_open(self, run: Run, patience: float = PATIENCE) -> EndedRun:
        """Replace a range of windows that a stream can still change, while borrowing the stream's lease (rule X4).

        Raises `FencedError` if a stream took the lease at each attempt.
        """

        def work(lease: Lease) -> EndedRun:
            return self._until_it_holds(run, partial(self._on_lease, lease))

        return under_borrowed_lease(self.lake, self.ledger, run.run, work, patience)

    def _until_it_holds(self, run: Run, publish: Callable[[Run, D, _Pin], int | None]) -> EndedRun:
        while True:
            pin = self._pinned(self.engine.follow())
            if pin is None:
                continue
            above = self._above(run)
            if above is not None and above.covers(run.first, run.last):
                return EndedRun(self.runs.give_way(run, above), dict.fromkeys(COUNTS, 0), above)
            if above is not None:
                # The run of a higher generation covers only a part of the range, so this run takes a still higher
                # generation for the whole range.
                run = self.runs.renew(run)
            run = replace(run, log_epoch=pin.head.number("epoch"))
            computed = self.engine.compute(run, pin.head)
            counts = {name: computed.counts[name] for name in COUNTS}
            try:
                if counts["changed"] or counts["retracted"]:
                    snapshot = publish(run, computed, pin)
                    if snapshot is None:
                        continue
                    self.engine.published(computed, snapshot)
            finally:
                self.engine.forget(computed)
            return EndedRun(self.runs.note(run, status="committed", **counts), counts)

    def _beside(self, branch: Branch, run: Run, computed: D, pin: _Pin) -> int | None:
        """Publish a run's rows without a lease; if another writer commits first, publish the same rows after that
        commit.

        Returns None if another run has already replaced a part of the range.
        """
        self.engine.write(computed, run, pin.head, branch, self._properties(run, branch.start()))
        if self._overtaken(run, pin, self.lake.commits(self.ledger)):
            return None
        with suppress(MovedError):
            return branch.publish()
        while True:
            commits = self.lake.commits(self.ledger)
            if self._overtaken(run, pin, commits):
                return None
            landed = [commit.snapshot for commit in commits if run.run in replacing_runs([commit])]
            if landed:
                # The run's commit is already on main: it has succeeded, and only the catalog's reply was lost.
                return landed[0]
            head = head_of_commits(commits)
            try:
                snapshot = branch.commit_again(self._properties(run, head), head.snapshot)
            except MovedError:
                continue
            self.lake.tell(Publication(self.ledger, branch.writer, Outcome.PUBLISHED))
            return snapshot

    def _on_lease(self, lease: Lease, run: Run, computed: D, pin: _Pin) -> int | None:
        """Publish a run's rows while the run holds the stream's lease; the same commit returns the lease to the stream.

        Returns None if another run has already replaced a part of the range.
        """
        while True:
            # After this commit, the stream continues in the run's generation (rule V2).
            properties = lease.return_properties({**_says(run), "generation": str(run.generation)})
            self.engine.write(computed, run, pin.head, lease.branch, properties)
            if self._overtaken(run, pin, self.lake.commits(self.ledger)):
                return None
            # Maintenance, or a run that replaces closed windows, may commit first. The loop then publishes the rows
            # again.
            with suppress(MovedError):
                return lease.publish(properties)

    def _pinned(self, since: int) -> _Pin | None:
        """Return the ledger's snapshot `since` and main's head at that snapshot, or None if it is no longer on main."""
        commits = self.lake.commits(self.ledger)
        known = [place for place, commit in enumerate(commits) if commit.snapshot == since]
        return _Pin(since, head_of_commits(commits[known[0] :])) if known else None

    def _above(self, run: Run) -> Run | None:
        """Return a run of a higher generation that has replaced a part of this run's range, or None (rule V4)."""
        noted = self.runs.run_above(run)
        if noted is not None:
            return noted
        # The ledger's commits are also searched, because a run is marked as committed in the table of runs only after
        # its commit.
        replaced = (ReplacedRange.of(commit.properties) for commit in self.lake.commits(self.ledger))
        made = next((one for one in replaced if one is not None and one.is_above(run)), None)
        return None if made is None else next((other for other in self.runs.all() if other.run == made.run), None)

    def _overtaken(self, run: Run, pin: _Pin, commits: Sequence[Commit]) -> bool:
        """Return True if another run has replaced a part of the run's range since the pinned snapshot."""
        for commit in commits:
            if commit.snapshot == pin.snapshot:
                return False
            other = ReplacedRange.of(commit.properties)
            if other is not None and other.run != run.run and run.overlaps(other.first, other.last):
                return True
        # The pinned snapshot no longer exists, so another run may have replaced a part of the range.
        return True

    def _properties(self, run: Run, head: Head) -> dict[str, str]:
        return {**repeated_properties(head.properties), **_says(run)}


class _Pin(NamedTuple):
    """A snapshot of the ledger, and the head of main at this snapshot."""

    snapshot: int
    head: Head


def _says(run: Run) -> dict[str, str]:
    """Return the properties by which a commit records a run and the range that the run replaced."""
    return {RUN: run.run, BACKFILLED: f"{run.run} {run.generation} {run.first} {run.last}"}
