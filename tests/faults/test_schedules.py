"""Streams, backfills and followers under random faults lose nothing and double nothing (X1 to X4, V1, V4, L1 to L3).

The commit protocol is the product's own, over a lake in memory and with the reference execution, so that thousands of
schedules can be tried. A schedule is its seed: TAILRACE_TEST_SEED=N runs just that one, and tells what happened.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tailrace.lake.commit import lease
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, seconds
from tailrace.model.combiners.basic import Count, Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.step.reference import fold
from tailrace.model.step.step import Record, WindowsState
from tailrace.model.triggers.combinators import AfterWatermark
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import ACCUMULATING, DISCARDING, RETRACTING, Answers, Pane, answers
from tailrace.model.windows.windows import Fixed, Sessions, Sliding
from tests.support.cases.strategies import BASE
from tests.support.checks import laws
from tests.support.checks.batch_answers import batch
from tests.support.depth import cases
from tests.support.faults.reference_writers import Epochs, backfill, recorded, stream
from tests.support.faults.worlds import Chances, World, Writer

SCHEDULES = cases(800, deeper=5000)
"""How many are run."""

PARTS = 8
ONE = os.environ.get("TAILRACE_TEST_SEED")
QUIET = Chances(killed=0, locked=0, full=0, lost=0, paused=0, yielded=0)

CLICKS = Log(
    name="clicks",
    columns={"id": "bigint", "who": "string", "cents": "bigint", "bad": "boolean", "at": "timestamp"},
    event_time="at",
)


def drawn(chance: random.Random) -> list[Pipeline]:
    """One or two definitions that read the log."""
    made = []
    for name in ("visits", "sums")[: chance.choice([1, 1, 2])]:
        where = chance.choice(
            [Fixed(seconds(4)), Fixed(seconds(10)), Sliding(seconds(6), seconds(3)), Sessions(seconds(3))]
        )
        early, lateness = chance.choice([None, AfterCount(1), AfterCount(3)]), chance.choice([None, 5, 20])
        made.append(
            Pipeline(
                name=name,
                log=CLICKS,
                key="who",
                what={"clicks": Count(), "cents": Sum("cents")},
                where=where,
                when=AfterWatermark(early=early, late=AfterCount(1) if lateness else None),
                how=chance.choice([ACCUMULATING, DISCARDING, RETRACTING]),
                allowed_lateness=seconds(lateness) if lateness else None,
            )
        )
    return made


def source(chance: random.Random) -> Epochs:
    """Bundles with their clocks; the last one's watermark is the end of time."""
    made, front, count = [], 0, 0
    for place in range(chance.randint(3, 8)):
        bundle: list[Record] = []
        for _ in range(chance.randint(0, 5)):
            at = BASE + timedelta(seconds=front - chance.choice([0, 1, 2, 6, 15]))
            own = {"who": chance.choice("ab"), "cents": chance.randint(-3, 9), "bad": chance.random() < 0.1}
            bundle.append({"id": count, "at": at, "_source": "clicks", "_offset": count} | own)
            count += 1
        clock = Clock(place, instant(BASE) + (front - 2) * 1_000_000, instant(BASE) + 10_000_000 * place)
        made.append((bundle, clock))
        front += chance.randint(0, 8)
    last, clock = made[-1]
    return [*made[:-1], (last, replace(clock, watermark=END_OF_TIME))]


class Schedule:
    """One world: its definitions and source, and who comes and goes."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, faults=random.Random(seed).choice([0, 3, 6, 12]))
        chance = self.world.chance
        self.world.chances.yielded = chance.choice([0.1, 0.35, 0.8])
        self.pipelines, self.source = drawn(chance), source(chance)
        ids = [one["id"] for bundle, _ in self.source for one in bundle]
        faulty = chance.random() < 0.4
        self.misses = frozenset(one for one in ids if faulty and chance.random() < 0.3)
        self.streams = self.backfills = 0
        self.ends: list[str] = []

    def run(self) -> None:
        for _ in range(self.world.chance.choice([1, 1, 2])):
            self.another_stream("")
        for _ in range(self.world.chance.choice([0, 1, 2, 4])):
            self.another_backfill("")
        self.world.run()
        self.world.faults, self.world.chances = 0, QUIET
        assert "ended" in self.ends or self.streams > 15, "X1: of streams that fence each other off one goes on"

    def another_stream(self, ended: str) -> None:
        self.ends.append(ended)
        # A supervisor starts it again, whatever it ended of; a fenced one stays down.
        if ended == "ended" or ended.startswith("FencedError") or self.streams > 15:
            return
        self.streams += 1
        work = lambda writer: stream(writer, self.pipelines, self.source, self.misses)  # noqa: E731
        self.world.start(f"stream {self.streams}", work, self.another_stream)

    def another_backfill(self, ended: str) -> None:
        if ended == "ended" or self.backfills > 12:
            return
        self.backfills += 1
        chance = self.world.chance
        pipeline = chance.choice(self.pipelines)
        first, last = sorted(chance.sample(range(-20, 60), 2))
        bounds = (instant(BASE) + first * 1_000_000, instant(BASE) + last * 1_000_000)
        if chance.random() < 0.5:
            bounds = (BEGINNING, END_OF_TIME)
        waits = chance.randrange(300)

        def work(writer: Writer) -> None:
            writer.paused = waits
            writer.rest()
            backfill(writer, pipeline, *bounds)

        self.world.start(f"backfill {self.backfills}", work, self.another_backfill)

    # ------------------------------------------------------------------------------------------------ what must hold

    def alone(self, work: Any) -> None:
        """Something that is done with nothing beside it and no fault."""
        failed: list[str] = []
        self.world.start("last", work, failed.append)
        self.world.run()
        assert failed == ["ended"]

    def ends_clean(self) -> None:
        self.alone(lambda writer: stream(writer, self.pipelines, self.source, frozenset()))
        records = self.everything_landed_once()
        for pipeline in self.pipelines:
            self.epochs_once(pipeline)
            panes = self.panes(pipeline)
            self.holds_together(pipeline, panes)
            if not self.misses and not self.corrected(pipeline):
                self.replays(pipeline, panes)
            self.counts_all_that_came_in_time(pipeline, records)
            self.alone(lambda writer, one=pipeline: backfill(writer, one, BEGINNING, END_OF_TIME))
            self.holds_together(pipeline, self.panes(pipeline))
            laws.same_answers(self.answers(pipeline), batch(pipeline, records), "L1, after a backfill of everything")
            before = self.world.lake.head(f"{pipeline.name}__ledger").snapshot
            self.alone(lambda writer, one=pipeline: backfill(writer, one, BEGINNING, END_OF_TIME))
            assert self.world.lake.head(f"{pipeline.name}__ledger").snapshot == before, "V4: nothing is left to change"

    def everything_landed_once(self) -> list[Record]:
        """X2, X6: each record of the source is in the log or in `rejected`, once."""
        log, bad = (self.world.lake.rows(table)[1] for table in ("clicks", "clicks__rejected"))
        came = [one for bundle, _ in self.source for one in bundle]
        assert Counter(row["record"]["id"] for row in log) == Counter(one["id"] for one in came if not one["bad"])
        assert Counter(row["record"]["id"] for row in bad) == Counter(one["id"] for one in came if one["bad"])
        return [row["record"] for row in log]

    def epochs_once(self, pipeline: Pipeline) -> None:
        """X2: the ledger has each epoch of the log in one commit, in order."""
        ledger = f"{pipeline.name}__ledger"
        found = [
            number for one in reversed(self.world.lake.commits(ledger)) if (number := self.folded(ledger, one)) >= 0
        ]
        assert found == list(range(len(self.source)))

    def folded(self, ledger: str, commit: Any) -> int:
        """The epoch that a commit folded; -1 for another's."""
        added = self.world.lake.tables[ledger].snapshots[commit.snapshot].added
        of_stream = added and "backfilled" not in commit.properties
        return int(commit.properties["epoch"]) if of_stream else -1

    def panes(self, pipeline: Pipeline) -> list[Pane]:
        return [row["pane"] for row in self.world.lake.rows(f"{pipeline.name}__ledger")[1] if row["kind"] == "pane"]

    def corrected(self, pipeline: Pipeline) -> bool:
        """Whether a backfill changed what the stream went on from."""
        return any(
            int(one.properties.get("generation", "1")) > 1
            for one in self.world.lake.commits(f"{pipeline.name}__ledger")
        )

    def answers(self, pipeline: Pipeline) -> Answers:
        return {row["place"]: row["answer"] for row in self.world.lake.rows(pipeline.name)[1]}

    def holds_together(self, pipeline: Pipeline, panes: list[Pane]) -> None:
        """V1 and L2: no pane is there twice or taken back that does not stand, and answers are what they come to."""
        seen = Counter((one.key, one.window, one.version, one.retraction) for one in panes)
        assert not [one for one, count in seen.items() if count > 1], "V1: a version is there twice"
        whole = [replace(one, values=one.answer) for one in panes] if pipeline.how is DISCARDING else panes
        how = ACCUMULATING if pipeline.how is DISCARDING else pipeline.how
        corrections_apart = replace(pipeline, how=how)
        if how is ACCUMULATING:
            laws.applied(corrections_apart, whole)
        else:
            laws.applied(pipeline, panes)
        laws.same_answers(self.answers(pipeline), answers(panes), "L2, the answers against the panes")

    def replays(self, pipeline: Pipeline, panes: list[Pane]) -> None:
        """L3: folding the log's epochs again gives the stream's panes, row for row."""
        lake = self.world.lake
        rows, found = lake.rows("clicks")[1], []
        writer: Any = type("Reader", (), {"lake": lake})
        for epoch, clock in sorted(recorded(writer, "clicks").items()):
            found.append(([row["record"] for row in rows if row["_epoch"] == epoch], clock))
        generation = lake.commits(f"{pipeline.name}__ledger")[-1].properties["generation"]
        again = fold(pipeline, found, WindowsState(generation=int(generation)))
        own = [pane for pane in panes if pane.writer == "stream"]
        laws.same_panes(own, again.panes, "L3, the ledger's panes against the log folded again", ordered=True)

    def counts_all_that_came_in_time(self, pipeline: Pipeline, records: list[Record]) -> None:
        """L1: the answers are the batch's where no record was late, whatever backfills ran meanwhile."""
        if self.misses:
            return
        late = [row["late"] for row in self.world.lake.rows(f"{pipeline.name}__ledger")[1] if row["kind"] == "late"]
        whole, found = batch(pipeline, records), self.answers(pipeline)
        lost = {(one.key, one.window) for one in late}
        for place, answer in whole.items():
            if not any(key == place[0] and window.overlaps(place[1]) for key, window in lost):
                assert found.get(place) == answer, f"L1: {place}"


@pytest.mark.parametrize("part", range(PARTS))
def test_X1_X2_X4_schedules_of_faults_end_clean(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(part, SCHEDULES, PARTS) if ONE is None else [int(ONE)] * (part == 0)
    faults: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed)
        monkeypatch.setattr(lease, "time", schedule.world)
        try:
            schedule.run()
            schedule.ends_clean()
        except BaseException as error:
            told = "\n".join(schedule.world.told)
            raise AssertionError(f"TAILRACE_TEST_SEED={seed}\n{told}\n{error}") from error
        faults.update(kind for told in schedule.world.told for kind in FAULTS if f": {kind} " in told)
    if ONE is None and SCHEDULES >= 2000:
        assert min(faults[kind] for kind in FAULTS) > 0, "every fault was there"


FAULTS = ("killed", "locked", "full", "lost", "paused")
