"""The protocol of a run that replaces a range, beside a running stream and beside other runs (rules V4 and X4).

A run says in its commit which range it replaced. It computes the difference to the answers as of a snapshot of the
ledger, which is right only as long as no other run has replaced any of its range since: each commit is made on a
snapshot of main whose commits were searched for such a run, and fails if main is not there any more. A run that was
overtaken computes anew. The engine decides what is computed and how rows are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tailrace.lake.catalog.events import Outcome, Publication
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import BACKFILLED, Commit, Head, Tables, repeated, standing
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.lease import PATIENCE, Lease, under_borrowed_lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name

RUN = "run"
"""The property with the run that a commit is of."""

COUNTS = ("changed", "untouched", "retracted")
"""The kinds of windows that a run counts: fired again or for the first time, left alone, and taken back for good."""


class RangeDifference(Protocol):
    """The rows that a run would write, and the number of windows of each kind in `COUNTS`."""

    @property
    def counts(self) -> Mapping[str, int]: ...


D = TypeVar("D", bound=RangeDifference)


class ReplacingEngine(Protocol[D]):
    """The part of an engine that computes a run's difference and writes it."""

    def follow(self) -> int:
        """Bring the answers up with the ledger; return the ledger's snapshot that they stand for."""

    def compute(self, run: Run, pinned: Head) -> D:
        """Compute the difference of the log's results, as of the pinned commit's epoch, to the answers in the range."""

    def write(self, found: D, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        """Append the difference's rows to a branch, in a commit with these properties."""

    def published(self, found: D, snapshot: int) -> None:
        """Bring the answers up with the commit of the difference."""

    def forget(self, found: D) -> None:
        """Release the computed difference."""


class Replaced(NamedTuple):
    """The run that a commit is of, and the range of window timestamps that the run replaced, in microseconds."""

    run: str
    generation: int
    first: int
    last: int

    @classmethod
    def of(cls, commit: Commit) -> Replaced | None:
        """Read the run off a commit's properties; None for a commit that is no run's.

        >>> Replaced.of(Commit(1, {BACKFILLED: "e5 7 0 60"})), Replaced.of(Commit(1, {}))
        (Replaced(run='e5', generation=7, first=0, last=60), None)
        """
        if BACKFILLED not in commit.properties:
            return None
        run, *numbers = commit.properties[BACKFILLED].split()
        return cls(run, *map(int, numbers))

    def above(self, run: Run) -> bool:
        """Tell whether this run is of a higher generation than another run, and replaced some of its range."""
        return self.generation > run.generation and run.overlaps(self.first, self.last)


@dataclass(frozen=True)
class EndedRun:
    """The end of a run: the run as it was last entered, its counts, and the run that it gave way to, if it did."""

    run: Run
    counts: Mapping[str, int]
    above: Run | None = None


class Replacing(Generic[D]):
    """The protocol of one run."""

    def __init__(self, lake: Tables, runs: Runs, engine: ReplacingEngine[D]) -> None:
        self.lake, self.runs, self.engine = lake, runs, engine
        self.ledger = ledger_name(runs.pipeline.name)

    def closed(self, run: Run) -> EndedRun:
        """Replace a range of windows that no stream can reach any more, without a lease (rule X4)."""
        branch = Branch(self.lake, self.ledger, f"backfill_{run.run}")
        try:
            return self._until_it_holds(run, partial(self._beside, branch))
        finally:
            branch.drop()

    def open(self, run: Run, patience: float = PATIENCE) -> EndedRun:
        """Replace a range of windows that a stream can still reach, on the stream's lease (rule X4).

        Raises `FencedError` where a stream took the lease each time, or did not wait any longer.
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
                return EndedRun(self.runs.gave_way(run, above), dict.fromkeys(COUNTS, 0), above)
            if above is not None:
                # The other run has only some of the range, and this run's results there are to be the later ones.
                run = self.runs.renewed(run)
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
        """Publish beside the stream; where the stream moved on, make the commit again with the rows as they are.

        Returns None where another run was faster.
        """
        self.engine.write(computed, run, pin.head, branch, self._properties(run, branch.start()))
        if self._overtaken(run, pin, self.lake.commits(self.ledger)):
            return None
        try:
            return branch.publish()
        except MovedError:
            pass
        while True:
            commits = self.lake.commits(self.ledger)
            if self._overtaken(run, pin, commits):
                return None
            landed = [commit.snapshot for commit in commits if _is_of(commit, run)]
            if landed:
                # The commit had landed, and only its reply was lost.
                return landed[0]
            head = standing(commits)
            try:
                snapshot = branch.again(self._properties(run, head), head.snapshot)
            except MovedError:
                continue
            self.lake.tell(Publication(self.ledger, branch.writer, Outcome.PUBLISHED))
            return snapshot

    def _on_lease(self, lease: Lease, run: Run, computed: D, pin: _Pin) -> int | None:
        """Publish at the epoch boundary at which the lease was borrowed, and give the lease back in the same commit.

        Returns None where another run was faster.
        """
        while True:
            # The stream goes on in the run's generation (rule V2).
            properties = lease.return_properties({**_says(run), "generation": str(run.generation)})
            self.engine.write(computed, run, pin.head, lease.branch, properties)
            if self._overtaken(run, pin, self.lake.commits(self.ledger)):
                return None
            try:
                return lease.publish(properties)
            except MovedError:
                # A run of closed windows, or maintenance, committed first.
                continue

    def _pinned(self, since: int) -> _Pin | None:
        """Pin the ledger at a snapshot; None where the snapshot is no longer in main."""
        commits = self.lake.commits(self.ledger)
        known = [place for place, commit in enumerate(commits) if commit.snapshot == since]
        return _Pin(since, standing(commits[known[0] :])) if known else None

    def _above(self, run: Run) -> Run | None:
        """Find a run of a higher generation that has replaced some of this one's range (rule V4)."""
        noted = self.runs.above(run)
        if noted is not None:
            return noted
        # The commits are searched, too: a run is noted as committed only after its commit.
        made = [one for commit in self.lake.commits(self.ledger) if (one := Replaced.of(commit)) and one.above(run)]
        if not made:
            return None
        return next((other for other in self.runs.all() if other.run == made[0].run), None)

    def _overtaken(self, run: Run, pin: _Pin, commits: Sequence[Commit]) -> bool:
        """Tell whether another run has replaced some of the range since the pinned snapshot."""
        for commit in commits:
            if commit.snapshot == pin.snapshot:
                return False
            other = Replaced.of(commit)
            if other is not None and other.run != run.run and run.overlaps(other.first, other.last):
                return True
        # The snapshot is not kept any more, so another run cannot be ruled out.
        return True

    def _properties(self, run: Run, head: Head) -> dict[str, str]:
        return {**repeated(head.properties), **_says(run)}


class _Pin(NamedTuple):
    """A snapshot of the ledger, and the head with the properties of its last epoch."""

    snapshot: int
    head: Head


def _says(run: Run) -> dict[str, str]:
    """Return the properties by which a run's commit names the run and its range."""
    return {RUN: run.run, BACKFILLED: f"{run.run} {run.generation} {run.first} {run.last}"}


def _is_of(commit: Commit, run: Run) -> bool:
    made = Replaced.of(commit)
    return made is not None and made.run == run.run
