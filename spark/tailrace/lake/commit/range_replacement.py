"""Replace a range of windows by a run, beside a running stream and other runs (rules V4 and X4).

A run's commit names the range that it replaced. The run computes the difference between its results and the answers as
of a snapshot of the ledger. This is correct only if no other run has replaced a part of the range since. So each commit
is built on a snapshot of main whose commits were searched for such runs, and it fails if main has moved. An overtaken
run computes again. The engine decides what is computed and how rows are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tailrace.lake.catalog.events import Outcome, Publication
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import BACKFILLED, Commit, Head, Tables, head_of_commits, repeated_properties
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.lease import PATIENCE, Lease, under_borrowed_lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name

RUN = "run"
"""The property with the run that made a commit."""

COUNTS = ("changed", "untouched", "retracted")
"""The kinds of windows that a run counts: fired (again), unchanged, and retracted for good."""


class RangeDifference(Protocol):
    """A run's rows to write, and the number of windows of each kind in `COUNTS`."""

    @property
    def counts(self) -> Mapping[str, int]: ...


D = TypeVar("D", bound=RangeDifference)


class ReplacingEngine(Protocol[D]):
    """The operations of an engine that compute a run's difference and write it."""

    def follow(self) -> int:
        """Bring the answers up to date with the ledger; return the ledger's snapshot that they have reached."""

    def compute(self, run: Run, pinned: Head) -> D:
        """Compute the difference between the log's results, as of the pinned epoch, and the answers in the range."""

    def write(self, found: D, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        """Append the difference's rows to a branch, in a commit with these properties."""

    def published(self, found: D, snapshot: int) -> None:
        """Bring the answers up to date with the difference's commit."""

    def forget(self, found: D) -> None:
        """Release the computed difference."""


class ReplacedRange(NamedTuple):
    """The run that made a commit, and the replaced range of window timestamps, in microseconds."""

    run: str
    generation: int
    first: int
    last: int

    @classmethod
    def of(cls, commit: Commit) -> ReplacedRange | None:
        """Read the run from a commit's properties; None if no run made the commit.

        >>> ReplacedRange.of(Commit(1, {BACKFILLED: "e5 7 0 60"})), ReplacedRange.of(Commit(1, {}))
        (ReplacedRange(run='e5', generation=7, first=0, last=60), None)
        """
        if BACKFILLED not in commit.properties:
            return None
        run, *numbers = commit.properties[BACKFILLED].split()
        return cls(run, *map(int, numbers))

    def is_above(self, run: Run) -> bool:
        """Tell whether this run has a higher generation than another run, and replaced a part of its range."""
        return self.generation > run.generation and run.overlaps(self.first, self.last)


@dataclass(frozen=True)
class EndedRun:
    """The end of a run: its last row, its counts, and the run that it gave way to, if any."""

    run: Run
    counts: Mapping[str, int]
    above: Run | None = None


class RangeReplacement(Generic[D]):
    """Replaces a range for one run, by the protocol."""

    def __init__(self, lake: Tables, runs: Runs, engine: ReplacingEngine[D]) -> None:
        self.lake, self.runs, self.engine = lake, runs, engine
        self.ledger = ledger_name(runs.pipeline.name)

    def replace_closed(self, run: Run) -> EndedRun:
        """Replace a range of windows that no stream can reach any longer, without a lease (rule X4)."""
        branch = Branch(self.lake, self.ledger, f"backfill_{run.run}")
        try:
            return self._until_it_holds(run, partial(self._beside, branch))
        finally:
            branch.drop()

    def replace_open(self, run: Run, patience: float = PATIENCE) -> EndedRun:
        """Replace a range of windows that a stream can still reach, under the stream's lease (rule X4).

        Raises `FencedError` if streams took the lease each time.
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
                # The other run covers only a part of the range, so this run takes a higher generation for the whole
                # range.
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
        """Publish without a lease; if the stream has committed meanwhile, commit the same rows again on top.

        Returns None if another run was faster.
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
            landed = [commit.snapshot for commit in commits if _is_of(commit, run)]
            if landed:
                # The commit had succeeded, and only its reply was lost.
                return landed[0]
            head = head_of_commits(commits)
            try:
                snapshot = branch.commit_again(self._properties(run, head), head.snapshot)
            except MovedError:
                continue
            self.lake.tell(Publication(self.ledger, branch.writer, Outcome.PUBLISHED))
            return snapshot

    def _on_lease(self, lease: Lease, run: Run, computed: D, pin: _Pin) -> int | None:
        """Publish at the epoch boundary where the lease was borrowed, and give the lease back in the same commit.

        Returns None if another run was faster.
        """
        while True:
            # The stream continues in the run's generation (rule V2).
            properties = lease.return_properties({**_says(run), "generation": str(run.generation)})
            self.engine.write(computed, run, pin.head, lease.branch, properties)
            if self._overtaken(run, pin, self.lake.commits(self.ledger)):
                return None
            # A run of closed windows, or maintenance, may commit first.
            with suppress(MovedError):
                return lease.publish(properties)

    def _pinned(self, since: int) -> _Pin | None:
        """Pin the ledger at a snapshot; None if the snapshot is no longer on main."""
        commits = self.lake.commits(self.ledger)
        known = [place for place, commit in enumerate(commits) if commit.snapshot == since]
        return _Pin(since, head_of_commits(commits[known[0] :])) if known else None

    def _above(self, run: Run) -> Run | None:
        """Find a run of a higher generation that has replaced a part of this run's range (rule V4)."""
        noted = self.runs.run_above(run)
        if noted is not None:
            return noted
        # The commits are searched, too, because a run's row changes to committed only after its commit.
        made = [
            one for commit in self.lake.commits(self.ledger) if (one := ReplacedRange.of(commit)) and one.is_above(run)
        ]
        if not made:
            return None
        return next((other for other in self.runs.all() if other.run == made[0].run), None)

    def _overtaken(self, run: Run, pin: _Pin, commits: Sequence[Commit]) -> bool:
        """Tell whether another run has replaced a part of the range since the pinned snapshot."""
        for commit in commits:
            if commit.snapshot == pin.snapshot:
                return False
            other = ReplacedRange.of(commit)
            if other is not None and other.run != run.run and run.overlaps(other.first, other.last):
                return True
        # The pinned snapshot is gone, so another run cannot be ruled out.
        return True

    def _properties(self, run: Run, head: Head) -> dict[str, str]:
        return {**repeated_properties(head.properties), **_says(run)}


class _Pin(NamedTuple):
    """A snapshot of the ledger, with the properties of its last epoch."""

    snapshot: int
    head: Head


def _says(run: Run) -> dict[str, str]:
    """Return the properties that name the run and its range in a commit."""
    return {RUN: run.run, BACKFILLED: f"{run.run} {run.generation} {run.first} {run.last}"}


def _is_of(commit: Commit, run: Run) -> bool:
    made = ReplacedRange.of(commit)
    return made is not None and made.run == run.run
