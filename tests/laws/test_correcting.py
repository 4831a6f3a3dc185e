"""Correcting windows that are open (rule X4): what is right is left alone, what is wrong ends as the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples.examples import figure
from tailrace.model.samples.examples import records as points
from tailrace.model.step.reference import ReferenceRun, fold, fold_stages
from tailrace.model.step.step import Record
from tailrace.model.step.transition import Transition
from tailrace.model.windows.panes import Late, Pane, answers
from tests.support.cases.stages import chains
from tests.support.cases.strategies import Epochs, epochs, everything, examples, pipelines
from tests.support.checks import laws
from tests.support.checks.batch_answers import batch
from tests.support.checks.stage_correction import correct_stages
from tests.support.checks.window_correction import Corrected, correct

GENERATION = 7


def corrected(pipeline: Pipeline, run: ReferenceRun, records: Sequence[Record]) -> Corrected:
    return correct(pipeline, run.state, records, answers(run.panes), GENERATION)


def losing(data: st.DataObject, made: Epochs) -> Epochs:
    """The epochs with some records lost, as by a stream with a fault."""
    lost = data.draw(st.sets(st.integers(0, 20)))
    return [([one for one in bundle if one["id"] not in lost], clock) for bundle, clock in made]


@examples(50, deeper=150)
@given(st.data())
def test_X4_a_state_that_lost_nothing_is_left_alone(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline, ends=False))
    run = fold(pipeline, made)
    assume(not run.late)
    found = corrected(pipeline, run, everything(made))
    assert found.panes == []
    assert found.state == run.state


@examples(50, deeper=150)
@given(st.data())
def test_X4_a_correction_is_not_made_twice(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline, ends=False))
    run = fold(pipeline, losing(data, made))
    once = corrected(pipeline, run, everything(made))
    panes = (*run.panes, *once.panes)
    again = correct(pipeline, once.state, everything(made), answers(panes), GENERATION + 1)
    assert again.panes == []
    assert again.state == once.state


@examples(70, deeper=200)
@given(st.data())
def test_X4_a_stream_goes_on_from_corrected_windows_to_the_batch_answer(data: st.DataObject) -> None:
    pipeline = laws.combinable(data.draw(pipelines()))
    made = data.draw(epochs(pipeline, ends=True))
    place = data.draw(st.integers(1, len(made) - 1))
    faulty, records = losing(data, made), everything(made)
    before = fold(pipeline, faulty[:place])
    found = corrected(pipeline, before, everything(made[:place]))
    after = fold(pipeline, made[place:], found.state)
    panes = [*before.panes, *found.panes, *after.panes]
    clock = before.state.clock
    watermark = BEGINNING if clock is None else clock.watermark
    rules = Transition(pipeline, Scalars())

    def reached(end: int) -> bool:
        return not rules.out_of_reach(end, watermark)

    late: list[Late] = [*after.late, *(one for one in before.late if not reached(one.window.end))]
    assume(not (pipeline.where.merges and before.late))
    expected = {at: values for at, values in batch(pipeline, records, late).items() if reached(at[1].end)}
    standing = {at: values for at, values in answers(panes).items() if reached(at[1].end)}
    laws.same_answers(standing, expected, "X4, the stream's answers after a correction against the batch's")
    laws.panes_apply_to_answers(pipeline, panes)


def test_V5_a_window_whose_timestamp_is_the_ranges_end_is_of_the_next_range() -> None:
    pipeline, records = figure(12), points()
    state = fold(pipeline, [(records, Clock(0, BEGINNING, 0))]).state
    first = min(state.windows["a",])
    lost = replace(state, windows={})
    ends = (first.timestamp, first.timestamp + 1)
    found = [correct(pipeline, lost, records, {}, GENERATION, last=end).state.windows.get(("a",), {}) for end in ends]
    assert [first in windows for windows in found] == [False, True]


@examples(25, deeper=60)
@given(st.data())
def test_V5_corrections_of_two_halves_are_one_of_the_whole(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline, ends=False))
    run = fold(pipeline, losing(data, made))
    records, standing = everything(made), answers(run.panes)
    assume(records)
    cut = data.draw(st.sampled_from(sorted({one["at"] for one in records})))
    whole = correct(pipeline, run.state, records, standing, GENERATION)
    at = int(cut.timestamp()) * 1_000_000
    halves = data.draw(st.permutations([(BEGINNING, at), (at, END_OF_TIME)]))
    state, panes = run.state, list(run.panes)
    for first, last in halves:
        one = correct(pipeline, state, records, answers(panes), GENERATION, first, last)
        state, panes = one.state, [*panes, *one.panes]
        for key, windows in state.windows.items() if pipeline.where.merges else ():
            assert len(pipeline.where.gathered(windows)) == len(windows), f"windows of {key} overlap"
    laws.same_panes(panes[len(run.panes) :], whole.panes, "V5, corrected in two halves")
    assert state.windows == whole.state.windows


@dataclass(frozen=True)
class Stages:
    """A definition of several stages of which a stream lost records of the first epochs, and their correction."""

    pipeline: Pipeline
    made: Epochs
    place: int
    before: tuple[ReferenceRun, ...]
    corrected: tuple[Corrected, ...]

    @classmethod
    def drawn(cls, data: st.DataObject, *, lost: bool = True) -> Stages:
        pipeline = data.draw(chains(kept=True))
        assume(all(stage.stamp is None for stage in pipeline.stages[:-1]))
        made = data.draw(epochs(pipeline.stages[0], ends=True))
        place = data.draw(st.integers(1, len(made) - 1))
        before = fold_stages(pipeline, (losing(data, made) if lost else made)[:place])
        first = pipeline.stages[0]
        assume(not (before[0].late and (first.where.merges or not lost)))
        panes = [run.panes for run in before]
        found = correct_stages(pipeline, [run.state for run in before], everything(made[:place]), panes, GENERATION)
        return cls(pipeline, made, place, before, found)

    @property
    def panes(self) -> list[tuple[Pane, ...]]:
        return [(*run.panes, *found.panes) for run, found in zip(self.before, self.corrected, strict=True)]


@examples(40, deeper=150)
@given(st.data())
def test_X4_stages_that_lost_nothing_are_left_alone_and_no_correction_is_made_twice(data: st.DataObject) -> None:
    lost = data.draw(st.booleans())
    one = Stages.drawn(data, lost=lost)
    if not lost:
        assert [found.panes for found in one.corrected] == [[] for _ in one.before]
        assert [found.state for found in one.corrected] == [run.state for run in one.before]
    states, records = [found.state for found in one.corrected], everything(one.made[: one.place])
    again = correct_stages(one.pipeline, states, records, one.panes, GENERATION + 1)
    assert [found.panes for found in again] == [[] for _ in one.before]
    assert [found.state for found in again] == states


@examples(60, deeper=250)
@given(st.data())
def test_X4_every_stage_goes_on_from_corrected_windows_to_the_batch_answer(data: st.DataObject) -> None:
    one = Stages.drawn(data)
    states, panes = [found.state for found in one.corrected], [found.panes for found in one.corrected]
    after = fold_stages(one.pipeline, one.made[one.place :], states, panes)
    for stage, run, before in zip(one.pipeline.stages, after, one.panes, strict=True):
        expected = batch(stage, everything(one.made), after[0].late)
        told = f"X4, the answers of {stage.name} after a correction against the batch's"
        laws.same_answers(answers([*before, *run.panes]), expected, told)
        laws.panes_apply_to_answers(stage, [*before, *run.panes])
        assert stage is one.pipeline.stages[0] or not run.late, "T3: what a correction changes later is not too late"
