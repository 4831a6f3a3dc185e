"""A changed later stage is built from the ledger of the one before it, and swapped in beside the streams of both."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, seed
from hypothesis import strategies as st

from tailrace import Count, Global
from tailrace.backfill.backfill import backfill_stages
from tailrace.lake.change.generations import refusal_reason
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.step.reference import fold
from tailrace.operate.changeover import ApplyError, apply, rollback
from tailrace.verify.replay import replay
from tests.fold.test_stages import BILLS, VISITS
from tests.support.cases.stages import chains
from tests.support.cases.strategies import each_time_the_same, epochs, everything
from tests.support.checks import laws
from tests.support.checks.batch_answers import batch
from tests.support.depth import cases
from tests.support.engines.stage_folds import StageFolds


@seed(9)
@each_time_the_same(cases(1, deeper=6))
@given(data=st.data())
def test_L1_a_later_stage_changed_in_place_is_as_if_it_had_been_streamed_all_along(
    data: st.DataObject,
) -> None:
    pipeline = data.draw(chains())
    made = data.draw(epochs(pipeline.stages[0], ends=True, max_epochs=5))
    place = data.draw(st.integers(1, len(made) - 1))
    assume(len(everything(made)) > 3)
    late = fold(pipeline.stages[0], made).late
    changed = replace(pipeline, where=Global(), key=(), what={**pipeline.what, "more": Count()})
    with tempfile.TemporaryDirectory() as folder:
        world = StageFolds(Path(folder), pipeline)
        for records, clock in made[:place]:
            world.land(records, clock.epoch, clock)
            world.fold(clock.epoch)
        if data.draw(st.booleans()):
            closed = min(
                stage.closed_until(world.lake.head(f"{stage.name}__ledger").number("watermark"))
                for stage in pipeline.stages
            )
            if closed > BEGINNING:
                backfill_stages(world.lake, pipeline, BEGINNING, closed)
        done = apply(world.lake, changed)
        assert done.run is not None
        assert done.run.status == "committed"
        assert replay(world.lake, changed).ok, "L3: it begins after what was built"
        # The fold of the old definition finds out and lets go; the one before it goes on.
        records, clock = made[place]
        world.land(records, clock.epoch, clock)
        world.fold(clock.epoch)
        assert [one.definition.name for one in world.group] == [stage.name for stage in pipeline.stages[:-1]]
        world.group.close()
        world.start(changed)
        world.fold(clock.epoch)
        for records, clock in made[place + 1 :]:
            world.land(records, clock.epoch, clock)
            world.fold(clock.epoch)
        world.group.close()
        world.clean()
        assert replay(world.lake, changed).ok
        laws.same_answers(world.answers(changed), batch(changed, everything(made), late), "L1, a changed stage")
        assert rollback(world.lake, pipeline).run is not None
        world.start(pipeline)
        world.fold(made[-1][1].epoch)
        world.group.close()
        world.clean()


def test_what_is_read_or_reads_what_the_lake_does_not_hold_is_not_changed_in_place(tmp_path: Path) -> None:
    world, otherwise = StageFolds(tmp_path, BILLS), replace(VISITS, on_time="if_non_empty")
    world.land([], 0, Clock(0, 0, 0))
    world.fold(0)
    assert "a later stage reads the panes of visits" in str(refusal_reason(world.lake, otherwise))
    with pytest.raises(ApplyError, match="the lake does not hold what is declared here"):
        apply(world.lake, replace(BILLS, log=otherwise.panes))
