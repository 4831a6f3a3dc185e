"""Backfills of open windows of random definitions, killed between two stages or not, beside folds that go on (X4)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import assume, event, given, seed
from hypothesis import strategies as st

from tailrace.backfill.pipeline_backfill import backfill, backfill_stages
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.step.reference import batch, fold
from tests.support import laws
from tests.support.correcting import drawn_range
from tests.support.depth import cases
from tests.support.stage_folds import StageFolds
from tests.support.stages import chains
from tests.support.strategies import each_time_the_same, epochs, everything, pipelines


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
        for records, clock in made[place:]:
            world.land(records, clock.epoch, clock)
            world.fold(clock.epoch)
            if again:
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
