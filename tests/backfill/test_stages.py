"""Backfills of open windows beside folds that go on, in this process: of stages, over productions, of sessions (X4)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, event, given, seed
from hypothesis import strategies as st

from tailrace import (
    EARLIEST,
    Col,
    Computation,
    Count,
    Derive,
    Field,
    Map,
    Max,
    Pipeline,
    Sessions,
    Sum,
    minutes,
)
from tailrace.backfill.backfill import backfill, backfill_stages
from tailrace.backfill.result import BackfillError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.definition.computation import Context
from tailrace.model.step.reference import fold
from tests.support.cases.corrections import drawn_range
from tests.support.cases.stages import chains
from tests.support.cases.strategies import each_time_the_same, epochs, everything, pipelines
from tests.support.checks import laws
from tests.support.checks.batch_answers import batch
from tests.support.depth import cases
from tests.support.engines.stage_folds import StageFolds
from tests.support.lakes.rides import HOURLY, RIDES


@seed(7)
@each_time_the_same(cases(1, deeper=8))
@given(data=st.data())
def test_X4_after_a_backfill_that_may_die_between_two_stages_every_stage_ends_as_the_batch(data: st.DataObject) -> None:
    pipeline = data.draw(st.one_of(chains(kept=True), chains(), pipelines()))
    first = pipeline.stages[0]
    assume(all(stage.stamp is None for stage in pipeline.stages[:-1]))
    made = data.draw(epochs(first, ends=True, max_epochs=5))
    lost, place = data.draw(st.sets(st.integers(0, 12), min_size=1)), data.draw(st.integers(1, len(made) - 1))
    assume(not fold(first, made).late and len(everything(made[:place])) > 2)
    killed, again = data.draw(st.booleans()), data.draw(st.booleans())
    event(f"{len(pipeline.stages)} stages")
    # Later stages may be deployed after the first one was corrected, and catch up with it from its first epoch.
    there = pipeline if data.draw(st.integers(0, 3)) else first
    with tempfile.TemporaryDirectory() as folder:
        world = StageFolds(Path(folder), there)
        for records, clock in made[:place]:
            world.land([one for one in records if one["id"] not in lost], clock.epoch, clock)
        world.fold(made[place - 1][1].epoch)
        for records, clock in made[:place]:
            world.land([one for one in records if one["id"] in lost], clock.epoch)
        if killed and len(there.stages) > 1:
            backfill(world.lake, first, BEGINNING)
        for part in cut(data, made):
            backfill_stages(world.lake, there, *part)
        if there is not pipeline or data.draw(st.booleans()):
            world.start(pipeline)
            world.fold(made[place - 1][1].epoch)
        if there is not pipeline:
            # What was corrected of closed windows, it finds in no epoch.
            backfill_stages(world.lake, pipeline, BEGINNING)
        for records, clock in made[place:]:
            world.land(records, clock.epoch, clock)
            world.fold(clock.epoch)
            if again and clock.epoch == made[place][1].epoch:
                found = [run for _, runs in backfill_stages(world.lake, pipeline, BEGINNING) for run in runs]
                assert not any(run.changed or run.retracted for run in found)
        world.group.close()
        world.clean()
        for stage in pipeline.stages:
            laws.same_answers(world.answers(stage), batch(stage, everything(made)), f"X4, the answers of {stage.name}")


def cut(data: st.DataObject, made: object) -> list[tuple[int, int]]:
    if data.draw(st.booleans()):
        return [(BEGINNING, END_OF_TIME)]
    at = drawn_range(data, everything(made)).end  # type: ignore[arg-type]
    parts = [(BEGINNING, at), (at, END_OF_TIME)] if at < END_OF_TIME else [(BEGINNING, at)]
    return data.draw(st.permutations(parts))


class Fares(Computation):
    """Produces each ride with what its rider has paid so far."""

    state = {"paid": Field("bigint", 0)}
    produces = {"cents": "bigint", "paid": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.paid += record["cents"]
        context.produce({"cents": record["cents"], "paid": context.state.paid}, event_time=record["day"])


VISITS = replace(HOURLY, name="visits", where=Sessions(minutes(30)))
FARES = Fares(name="fares", log=RIDES, key="who")
TWICE = Map(name="twice", log=RIDES, each=Derive({"double": Col("cents") * 2}), what=("who", "double"))
OVER = [
    replace(VISITS, log=FARES.produced, what={**VISITS.what, "most": Max("paid")}),
    replace(HOURLY, log=TWICE.produced, what={"n": Count(), "cents": Sum("double")}),
]


def ridden(world: StageFolds, epoch: int, watermark: str, *rides: tuple[str, int, str]) -> None:
    """Land rides by who, cents and minute of a day, and fold them."""
    records = [{"who": who, "cents": cents, "day": on(at), "seen": on(at)} for who, cents, at in rides]
    world.land(records, epoch, Clock(epoch, instant(on(watermark)), epoch))
    world.fold(epoch)


def on(at: str) -> datetime:
    """A minute of the first day, or of another one: `02T08:15`."""
    return datetime.fromisoformat(f"2026-01-{at if 'T' in at else f'01T{at}'}:00+00:00")


def totals(world: StageFolds, pipeline: Pipeline) -> dict[tuple[str, str], tuple[int, int]]:
    """The rides and cents of each answer, by who and the minute at which its window starts."""
    return {
        (str(key[0]), moment(window.start).strftime("%H:%M")): (values["n"], values["cents"])
        for (key, window), values in world.answers(pipeline).items()
    }


@pytest.mark.parametrize("pipeline", OVER, ids=["computation", "map"])
def test_X4_open_windows_over_what_others_produced_are_computed_from_their_ledgers(
    tmp_path: Path, pipeline: Pipeline
) -> None:
    world = StageFolds(tmp_path, pipeline)
    ridden(world, 0, "08:30", ("ann", 1, "08:05"), ("bob", 2, "08:10"), ("ann", 4, "08:20"), ("ann", 8, "08:40"))
    world.lose(pipeline, "ann")
    ridden(world, 1, "08:40", ("ann", 16, "08:45"), ("bob", 1, "08:50"))
    assert backfill(world.lake, pipeline, BEGINNING)[-1].changed == 1
    ridden(world, 2, "08:45", ("ann", 32, "08:55"))
    ridden(world, 3, "13:20", ("zoe", 0, "13:30"))
    assert [run.changed for run in backfill(world.lake, pipeline, BEGINNING)] == [0, 0]
    world.group.close()
    world.clean()
    each = 2 if pipeline.name == "hourly" else 1
    assert totals(world, pipeline)["ann", "08:00" if each == 2 else "08:05"] == (5, 61 * each)


def test_V5_a_range_of_open_sessions_takes_each_that_ends_in_it_with_all_that_it_overlaps(tmp_path: Path) -> None:
    world = StageFolds(tmp_path, VISITS)
    ridden(world, 0, "08:10", ("ann", 1, "08:05"), ("bob", 2, "08:10"), ("ann", 4, "08:20"))
    world.lose(VISITS, "ann")
    # What comes is a session by itself in the wrong state, and belongs to that of 08:05 in the log.
    ridden(world, 1, "08:40", ("ann", 8, "08:40"), ("ann", 64, "10:05"), ("bob", 2, "08:41"))
    world.lose(VISITS, "bob")
    assert totals(world, VISITS)["ann", "08:05"] == (2, 5), "the answer of the window that the state has lost"
    nine, ten = instant(on("09:00")), instant(on("10:00"))
    later = backfill(world.lake, VISITS, nine, ten)[-1]
    assert (later.changed, later.retracted) == (2, 2), "two of ann are one, and the later one of bob is there again"
    earlier = backfill(world.lake, VISITS, BEGINNING, nine)[-1]
    assert (earlier.changed, earlier.retracted) == (1, 0), "the earlier one of bob"
    world.clean()
    ridden(world, 2, "08:50", ("ann", 16, "08:45"), ("bob", 1, "08:50"), ("ann", 1, "10:10"))
    ridden(world, 3, "02T07:50", ("zoe", 0, "02T08:00"))
    world.clean()
    assert totals(world, VISITS)["ann", "08:05"] == (4, 29)
    assert backfill(world.lake, VISITS, BEGINNING)[-1].changed == 0
    ridden(world, 4, "03T07:50", ("ann", 128, "08:00"), ("zoe", 0, "03T08:00"))
    eight = nine - 15 * 60_000_000
    assert [run.changed for run in backfill(world.lake, VISITS, BEGINNING, eight)] == [0], "its session ends later"
    world.clean()
    assert sum(run.changed for run in backfill(world.lake, VISITS, BEGINNING)) == 1
    world.clean()
    assert totals(world, VISITS)["ann", "08:00"] == (5, 157), "it is in one"
    world.group.close()


def test_X4_answers_that_happen_at_their_first_record_are_corrected_once_they_are_closed(tmp_path: Path) -> None:
    begun = replace(VISITS, timestamp=EARLIEST)
    counted = replace(HOURLY, name="counted", log=begun.panes, allowed_lateness=None)
    world = StageFolds(tmp_path, counted)
    ridden(world, 0, "08:10", ("ann", 1, "08:05"))
    for stages in (counted, begun):
        with pytest.raises(BackfillError, match="pass a --to of at most 2026-01-01T05:"):
            backfill_stages(world.lake, stages, BEGINNING)
    with pytest.raises(BackfillError, match="backfill all stages"):
        backfill(world.lake, counted, BEGINNING)
    world.group.close()
