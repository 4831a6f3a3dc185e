"""The laws (L1 to L3) on random definitions and random epochs, of the reference execution.

`TAILRACE_TEST_DEPTH=20 pytest tests/laws` tries twenty times as many examples of each.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import accumulate

from hypothesis import given, note
from hypothesis import strategies as st

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, seconds
from tailrace.model.combiners.basic import Count
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples.examples import NOON, SCORES
from tailrace.model.step.reference import at_once, fold
from tailrace.model.step.step import WindowsState, step
from tailrace.model.step.transition import Times, Transition
from tailrace.model.triggers.combinators import AllOf, AnyOf, Repeat, Until
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import Accumulation, answers
from tailrace.model.windows.windows import Global, Sessions
from tests.support.cases.strategies import (
    BASE,
    Epochs,
    epochs,
    everything,
    examples,
    pipelines,
    runs,
)
from tests.support.checks import laws
from tests.support.checks.batch_answers import batch


def told(pipeline: Pipeline, made: Epochs) -> None:
    """What a failing example prints."""
    note(f"{pipeline!r}")
    for bundle, clock in made:
        note(f"  {clock}: {bundle}")


@examples(60, deeper=150)
@given(runs())
def test_L1_L2_M1_V1_V3_X6_every_run_keeps_the_laws(run: tuple[Pipeline, Epochs]) -> None:
    told(*run)
    laws.holds_for_fold(*run)


@examples(40, deeper=100)
@given(st.data())
def test_V3_sessions_keep_the_laws(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines(where=Sessions(seconds(data.draw(st.integers(2, 6))))))
    pipeline = replace(pipeline, key=())  # all in one group, so that they merge
    made = data.draw(epochs(pipeline, max_bundle=4))
    told(pipeline, made)
    laws.holds_for_fold(pipeline, made)


@examples(40)
@given(runs(ends=True))
def test_L1_an_ended_stream_has_the_answers_of_the_batch(run: tuple[Pipeline, Epochs]) -> None:
    pipeline, made = run
    told(pipeline, made)
    folded = fold(pipeline, made)
    laws.ended_is_batch(pipeline, everything(made), folded.panes, folded.late)


@examples(40)
@given(runs(ends=False))
def test_L1_with_a_watermark_that_stands_no_record_is_late_and_no_cut_matters(run: tuple[Pipeline, Epochs]) -> None:
    pipeline, made = run
    pipeline = replace(pipeline, finishing="refuse") if not pipeline.when.finishes else pipeline
    if pipeline.finishing == "close":
        return
    told(pipeline, made)
    stands = [(bundle, replace(clock, watermark=BEGINNING)) for bundle, clock in made]
    last = made[-1][1]
    ended = fold(pipeline, [*stands, ([], Clock(last.epoch + 1, END_OF_TIME, last.processing_time))])
    assert not ended.late
    once = at_once(pipeline, everything(made))
    laws.same_answers(answers(ended.panes), answers(once.panes), "L1, cut into epochs against all at once")
    laws.same_answers(answers(once.panes), batch(pipeline, everything(made)), "L1, all at once against the batch")


@examples(50)
@given(st.data())
def test_L1_V5_backfills_of_any_cut_are_the_batch_over_the_whole_log(data: st.DataObject) -> None:
    pipeline, made = data.draw(runs())
    told(pipeline, made)
    cuts = data.draw(st.lists(st.integers(-10_000_000, 60_000_000), max_size=4))
    laws.backfill_is_batch(pipeline, everything(made), [instant(BASE) + cut for cut in cuts])


@examples(40)
@given(runs())
def test_L3_a_replay_gives_the_same_panes_and_so_does_going_on_from_any_state(run: tuple[Pipeline, Epochs]) -> None:
    told(*run)
    laws.replays_the_same(*run)


@examples(20)
@given(runs())
def test_T3_a_clock_that_goes_back_is_refused(run: tuple[Pipeline, Epochs]) -> None:
    told(*run)
    laws.clock_never_goes_back(*run)


@examples(50)
@given(runs(), st.sampled_from([1, 20, 61]))
def test_M3_without_new_records_panes_come_to_an_end(run: tuple[Pipeline, Epochs], step: int) -> None:
    told(*run)
    laws.quiet_input_goes_quiet(run[0], fold(*run).state, step=step * 1_000_000)


@examples(50)
@given(runs(), st.randoms(use_true_random=False))
def test_T4_the_order_of_records_within_an_epoch_does_not_matter(
    run: tuple[Pipeline, Epochs], shuffler: random.Random
) -> None:
    pipeline, made = run
    told(pipeline, made)
    shuffled = [(shuffler.sample(bundle, len(bundle)), clock) for bundle, clock in made]
    one, other = fold(pipeline, made), fold(pipeline, shuffled)
    laws.same_panes(other.panes, one.panes, "T4, shuffled within epochs")
    assert Counter((id(late.record), late.window, late.reason) for late in one.late) == Counter(
        (id(late.record), late.window, late.reason) for late in other.late
    )
    assert one.state == other.state


@examples(40)
@given(runs())
def test_T4_each_key_is_folded_as_if_it_were_alone(run: tuple[Pipeline, Epochs]) -> None:
    pipeline, made = run
    told(pipeline, made)
    whole = fold(pipeline, made)
    for key in {tuple(record[column] for column in pipeline.key) for record in everything(made)}:
        own = [
            ([record for record in bundle if tuple(record[column] for column in pipeline.key) == key], clock)
            for bundle, clock in made
        ]
        theirs = [pane for pane in whole.panes if pane.key == key]
        laws.same_panes(fold(pipeline, own).panes, theirs, f"{key} alone", ordered=True)


@examples(100)
@given(runs())
def test_T4_windows_to_which_nothing_comes_and_which_nothing_stirs_can_be_left_out_of_an_epoch(
    run: tuple[Pipeline, Epochs],
) -> None:
    pipeline, made = run
    told(pipeline, made)
    rules, state = Transition(pipeline, Scalars()), WindowsState()
    for bundle, clock in made:
        before = state.clock or Clock(-1, BEGINNING, clock.processing_time - 1)
        signals = {name: name in clock.signals for name in pipeline.when.signals()}
        times = Times(before.watermark, clock.watermark, before.processing_time, clock.processing_time, signals)
        brought = {tuple(record[column] for column in pipeline.key) for record in bundle}
        resting = {
            (key, window): row
            for key, windows in state.windows.items()
            for window, row in windows.items()
            if key not in brought and not rules.changes_without_records(row, window.end, times)
        }
        touched = {
            key: {window: row for window, row in windows.items() if (key, window) not in resting}
            for key, windows in state.windows.items()
        }
        whole, part = (
            step(pipeline, state, bundle, clock),
            step(pipeline, replace(state, windows=touched), bundle, clock),
        )
        assert (part.panes, part.late) == (whole.panes, whole.late)
        left = {(key, window): row for key, windows in part.state.windows.items() for window, row in windows.items()}
        after = {(key, window): row for key, windows in whole.state.windows.items() for window, row in windows.items()}
        assert left | resting == after
        state = whole.state


@examples(40)
@given(runs())
def test_L2_the_answer_is_the_same_in_every_mode(run: tuple[Pipeline, Epochs]) -> None:
    pipeline, made = run
    told(pipeline, made)
    expected = fold(pipeline, made)
    for how in Accumulation:
        found = fold(replace(pipeline, how=how), made)
        laws.same_answers(answers(found.panes), answers(expected.panes), f"L2, {how.value}")
        fired = [[p.version for p in r.panes if not p.retraction] for r in (found, expected)]
        assert fired[0] == fired[1]
        assert found.late == expected.late


@examples(40)
@given(runs(), st.randoms(use_true_random=False))
def test_V1_versions_alone_say_which_answer_stands(run: tuple[Pipeline, Epochs], shuffler: random.Random) -> None:
    pipeline, made = run
    panes = list(fold(pipeline, made).panes)
    laws.same_answers(answers(shuffler.sample(panes, len(panes))), answers(panes), "V1, panes in any order")


@examples(50)
@given(runs())
def test_M5_a_single_part_in_any_of_or_all_of_changes_nothing(run: tuple[Pipeline, Epochs]) -> None:
    pipeline, made = run
    told(pipeline, made)
    expected = fold(pipeline, made).panes
    for when in (AnyOf(pipeline.when), AllOf(pipeline.when)):
        laws.same_panes(fold(replace(pipeline, when=when), made).panes, expected, f"{when!r}", ordered=True)
    if not pipeline.when.finishes:
        again = Repeat(pipeline.when)
        if not list(again.faults("when")):
            laws.same_panes(fold(replace(pipeline, when=again), made).panes, expected, f"{again!r}", ordered=True)


@examples(40)
@given(st.integers(1, 9), st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=8), st.booleans())
def test_M6_a_stop_ends_a_window_with_the_same_record_however_records_are_cut(
    last: int, each: int, cut: list[int], beside: bool
) -> None:
    until = Until(Repeat(AfterCount(each)), AfterCount(last))
    # A pane that another part fires changes nothing either.
    when = AnyOf(until, Repeat(AfterCount(2))) if beside else until
    what = {"n": Count()}
    pipeline = Pipeline(name="cut", log=SCORES, what=what, where=Global(), when=when, finishing="close")
    score = {"team": "a", "value": 1, "at": NOON, "seen": NOON, "_source": "f"}
    made = [
        ([{**score, "_epoch": epoch, "_offset": n} for n in range(count)], Clock(epoch, BEGINNING, epoch))
        for epoch, count in enumerate(cut)
    ]
    # All records of the epoch that brings the last one are in, and those of the epochs after it are too late.
    taken = next((total for total in accumulate(cut) if total >= last), sum(cut))
    assert sum(cut) - taken == len(fold(pipeline, made).late)


@examples(40)
@given(runs(), st.integers(1, 5))
def test_V2_a_window_carries_the_generation_it_was_opened_in(run: tuple[Pipeline, Epochs], generation: int) -> None:
    pipeline, made = run
    told(pipeline, made)
    half = len(made) // 2
    first = fold(pipeline, made[:half])
    second = fold(pipeline, made[half:], replace(first.state, generation=generation))
    held = {(key, window) for key, own in first.state.windows.items() for window in own}
    for pane in second.panes:
        if (pane.key, pane.window) in held:
            assert pane.version.generation == 0, laws.told(pane)
        elif not pane.retraction:
            assert pane.version.generation == generation, laws.told(pane)
    laws.panes_hold_together(pipeline, [*first.panes, *second.panes])


@examples(30)
@given(st.data())
def test_L1_a_record_more_that_is_too_late_changes_no_answer(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline, ends=True))
    last = made[-1][1]
    told(pipeline, made)
    run = fold(pipeline, made)
    more = fold(pipeline, [(everything(made), Clock(last.epoch + 1, END_OF_TIME, last.processing_time))], run.state)
    assert not more.panes
    assert not more.state.windows
