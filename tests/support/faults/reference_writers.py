"""The commit protocol with the reference execution: writers that need no engine, over a lake in memory.

A stream lands bundles in the log and folds them, a backfill replaces ranges, answers follow. Leases, branches, runs,
the follower's loop and the runs' protocol are the product's own; what an engine does is done here on plain rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import FileChange, Head
from tailrace.lake.commit.answers_merge import Following
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.lease import Lease
from tailrace.lake.commit.range_replacement import EndedRun, RangeReplacement
from tailrace.lake.commit.runs_table import Runs
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.step import Record, WindowsState, step
from tailrace.model.windows.panes import Answers, Key, Pane, Timing, Version
from tailrace.model.windows.windows import Window
from tests.support.checks.batch_answers import backfilled
from tests.support.checks.window_correction import correct
from tests.support.faults.worlds import NotYetError, Writer

Epochs = Sequence[tuple[Sequence[Record], Clock]]


class Landing:
    """The writer of one log and its `rejected`."""

    def __init__(self, writer: Writer, log: str) -> None:
        self.writer, self.lake = writer, writer.lake
        for table in (log, f"{log}__rejected"):
            self.lake.made(table, {"epoch": "-1", "batch": "-1"})
        self.log = Lease.take(self.lake, log)
        self.rejected = Lease.take(self.lake, f"{log}__rejected", self.log)

    @property
    def epoch(self) -> int:
        return self.log.head.number("epoch")

    def land(self, batch: int, bundle: Sequence[Record], clock: Clock) -> Clock:
        """Land a micro-batch; gives its epoch's clock, which never goes back."""
        before, epoch = self.log.head, self.epoch + 1
        # A host's clock may be behind the one of the host before it.
        now = max(clock.processing_time, before.number("processing_time", BEGINNING))
        clock = Clock(epoch, max(clock.watermark, before.number("watermark", BEGINNING)), now, clock.signals)
        said = {"epoch": str(epoch), "batch": str(batch), "watermark": str(clock.watermark)}
        said |= {"processing_time": str(now), "signals": ",".join(clock.signals)}
        bad = [one for one in bundle if one["bad"]]
        if bad and self.rejected.head.number("epoch") < epoch:
            self._publish(self.rejected, bad, said, epoch)
        self._publish(self.log, [one for one in bundle if not one["bad"]], said, epoch)
        return clock

    def _publish(self, lease: Lease, rows: Sequence[Record], said: dict[str, str], epoch: int) -> None:
        stamped = [{"_epoch": epoch, "record": one} for one in rows]

        def write() -> None:
            written(self.lake, lease.branch, stamped, {**said, **lease.properties})

        write()
        lease.commit({**said, **lease.properties}, write)


class Fold:
    """The running fold of one pipeline."""

    def __init__(self, writer: Writer, pipeline: Pipeline, landing: Lease, misses: frozenset[int]) -> None:
        self.lake, self.pipeline, self.misses = writer.lake, pipeline, misses
        ledger = f"{pipeline.name}__ledger"
        if ledger not in writer.world.lake.tables:
            run = Runs(self.lake, pipeline).start("stream", BEGINNING, END_OF_TIME, log_epoch=None)
            self.lake.made(ledger, {"epoch": "-1", "generation": str(run.generation)})
        self.lake.made(pipeline.name, {})
        self.lease = Lease.take(self.lake, ledger, landing)
        self.follower = Merging(self.lake, pipeline, f"stream_{self.lease.token}")
        self.state = self._restored()

    @property
    def epoch(self) -> int:
        return self.lease.head.number("epoch")

    def fold(self, records: Sequence[Record], clock: Clock) -> None:
        while not self._folded(records, clock):
            self.lease.regain()
            self.state = self._restored()

    def _folded(self, records: Sequence[Record], clock: Clock) -> bool:
        # A stream with a fault: it does not see some of the records.
        seen = [one for one in records if one["id"] not in self.misses]
        state, panes, late, _ = step(self.pipeline, self.state, seen, clock)
        said = {"epoch": str(clock.epoch), "watermark": str(clock.watermark), **self.lease.properties}
        said |= {"processing_time": str(clock.processing_time), "generation": str(self.state.generation)}
        rows: list[Mapping[str, Any]] = [{"kind": "partial", "state": state}]
        rows += [{"kind": "pane", "pane": one} for one in panes] + [{"kind": "late", "late": one} for one in late]

        def write() -> None:
            written(self.lake, self.lease.branch, rows, said)

        write()
        if not self.lease.commit(said, write):
            return False
        self.state = state
        return True

    def _restored(self) -> WindowsState:
        rows = self.lake.contents(self.lease.table, self.lease.head.snapshot)
        held: list[WindowsState] = [row["state"] for row in rows if row["kind"] == "partial"]
        if held:
            return held[-1]
        return WindowsState(generation=self.lease.head.number("generation", 1))

    def close(self) -> None:
        self.follower.follow()
        self.follower.close()
        self.lease.close()


class Merging(Following):
    """The answers as rows of key, window, version and answer."""

    def __init__(self, lake: Any, pipeline: Pipeline, owner: str) -> None:
        super().__init__(lake, pipeline.name, owner)

    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        lake: Any = self.lake
        latest: dict[tuple[Key, Window], Pane] = {}
        for row in lake.gained(f"{self.name}__ledger", since, until):
            if row["kind"] == "pane":
                pane = row["pane"]
                held = latest.get((pane.key, pane.window))
                if held is None or (held.version, not held.retraction) < (pane.version, not pane.retraction):
                    latest[pane.key, pane.window] = pane
        merged = {row["place"]: row for row in lake.contents(self.name, self.branch.base)}
        for place, pane in latest.items():
            if place in merged and not pane.version > merged[place]["version"]:
                continue
            merged.pop(place, None)
            if not pane.retraction:
                merged[place] = {"place": place, "version": pane.version, "answer": pane.answer}
        written(lake, self.branch, list(merged.values()), stamp, replaces=True)


def written(
    lake: Any, branch: Branch, rows: Sequence[Mapping[str, Any]], said: Mapping[str, str], *, replaces: bool = False
) -> None:
    """Write rows in each way that there is: a writer with Spark writes what is small by itself."""
    if lake.direct or len(rows) % 2:
        branch.hold(FileChange(tuple(rows), ("all",) if replaces else ()), said)
    else:
        branch.open_for_spark()
        lake.write(branch.table, branch.name, rows, said, replaces=replaces)


@dataclass(frozen=True)
class Found:
    """What a run would write."""

    panes: Sequence[Pane]
    counts: Mapping[str, int]
    state: WindowsState | None = None


class Backfill:
    """The engine of a run: of windows that are closed, or of those that are open."""

    def __init__(self, writer: Writer, pipeline: Pipeline, first: int, last: int, *, opened: bool) -> None:
        self.lake, self.pipeline, self.first, self.last, self.opened = writer.lake, pipeline, first, last, opened

    def run(self) -> EndedRun:
        head = self.lake.head(f"{self.pipeline.name}__ledger")
        runs = Runs(self.lake, self.pipeline)
        run = runs.start("backfill", self.first, self.last, log_epoch=head.number("epoch"))
        self.follower = Merging(self.lake, self.pipeline, f"backfill_{run.run}")
        replacing = RangeReplacement(self.lake, runs, self)
        try:
            return replacing.replace_open(run) if self.opened else replacing.replace_closed(run)
        except Exception as error:
            runs.record_failure(run, error)
            raise
        finally:
            self.follower.close()

    def follow(self) -> int:
        return self.follower.follow()

    def compute(self, run: Run, pinned: Head) -> Found:
        epoch, watermark, now = (pinned.number(name, 0) for name in ("epoch", "watermark", "processing_time"))
        clock = Clock(epoch, watermark, now)
        _, rows = self.lake.rows(self.pipeline.log.name)
        records = [row["record"] for row in rows if row["_epoch"] <= clock.epoch]
        _, answers = self.lake.rows(self.pipeline.name)
        held: Answers = {row["place"]: row["answer"] for row in answers}
        if self.opened:
            return self._corrected(run, records, held)
        within = {place: one for place, one in held.items() if self.first <= place[1].timestamp < self.last}
        computed = backfilled(self.pipeline, records, self.first, self.last)
        panes, counts = [], {"changed": 0, "untouched": 0, "retracted": 0}
        for place in {**within, **computed}:
            before, after = within.get(place), computed.get(place)
            if before == after:
                counts["untouched"] += 1
                continue
            counts["retracted" if after is None else "changed"] += 1
            for values, retraction in ((before, True), (after, False)):
                if values is not None:
                    version = Version(run.generation, clock.epoch, 0)
                    times = (clock.watermark, clock.processing_time)
                    one = (*place, values, values, Timing.CORRECTION, retraction, version, *times, "backfill")
                    panes.append(Pane(*one))
        return Found(panes, counts)

    def _corrected(self, run: Run, records: Sequence[Record], held: Answers) -> Found:
        _, rows = self.lake.rows(f"{self.pipeline.name}__ledger")
        state = [row["state"] for row in rows if row["kind"] == "partial"][-1]
        found = correct(self.pipeline, state, records, held, run.generation, self.first, self.last)
        moved = found.state != state
        counts = {"changed": len(found.panes) + moved, "untouched": 0, "retracted": 0}
        return Found(found.panes, counts, found.state)

    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, said: Mapping[str, str]) -> None:
        rows: list[Mapping[str, Any]] = [{"kind": "pane", "pane": one} for one in found.panes]
        if found.state is not None:
            rows.append({"kind": "partial", "state": found.state})
        written(self.lake, branch, rows, said)

    def published(self, found: Found, snapshot: int) -> None:
        self.follower.follow()

    def forget(self, found: Found) -> None:
        """It is all in memory."""


def backfill(writer: Writer, pipeline: Pipeline, first: int, last: int) -> None:
    """Compute a range anew: what is closed, and what a stream can still reach."""
    ledger = f"{pipeline.name}__ledger"
    if ledger not in writer.world.lake.tables or writer.lake.head(ledger).number("epoch") < 0:
        raise NotYetError
    closed = pipeline.closed_until(writer.lake.head(ledger).number("watermark"))
    if first < closed:
        Backfill(writer, pipeline, first, min(last, closed), opened=False).run()
    if last > closed:
        Backfill(writer, pipeline, max(first, closed), last, opened=True).run()


def stream(writer: Writer, pipelines: Sequence[Pipeline], source: Epochs, misses: frozenset[int]) -> None:
    """Land a source and fold it into pipelines until it has no more; what is on the way is in `pending`."""
    chance, log = writer.world.chance, pipelines[0].log.name
    landing = Landing(writer, log)
    folds = [Fold(writer, one, landing.log, misses) for one in pipelines]
    catch_up(writer, landing, folds)
    # A checkpoint may be older than the log, or lost: what the log has is left alone.
    reached = landing.log.head.number("batch")
    place, pending = chance.randint(0, reached + 1), list[tuple[Sequence[Record], Clock]]()
    while place < len(source) or pending:
        if place < len(source) and len(pending) < 2 and (not pending or chance.random() < 0.5):
            bundle, clock = source[place]
            if place > reached:
                skew = chance.choice([0, 0, 5_000_000, -60_000_000])
                landed = landing.land(place, bundle, replace(clock, processing_time=clock.processing_time + skew))
                pending.append(([one for one in bundle if not one["bad"]], landed))
            place += 1
            continue
        records, clock = pending.pop(0)
        for fold in folds:
            fold.fold(records, clock)
            if chance.random() < 0.3:
                fold.follower.follow()
    for fold in folds:
        fold.close()
    landing.log.close()
    landing.rejected.close()


def catch_up(writer: Writer, landing: Landing, folds: Sequence[Fold]) -> None:
    """Fold what is in the log but not in a ledger, with the recorded clocks."""
    clocks = recorded(writer, landing.log.table)
    _, rows = writer.lake.rows(landing.log.table)
    for fold in folds:
        for epoch in range(fold.epoch + 1, landing.epoch + 1):
            fold.fold([row["record"] for row in rows if row["_epoch"] == epoch], clocks[epoch])


def recorded(writer: Writer, log: str) -> dict[int, Clock]:
    """The clocks that a log's commits say, by epoch."""
    found = {}
    for _, said in writer.lake.commits(log):
        if "watermark" in said:
            signals = tuple(name for name in said["signals"].split(",") if name)
            clock = Clock(int(said["epoch"]), int(said["watermark"]), int(said["processing_time"]), signals)
            found[clock.epoch] = clock
    return found
