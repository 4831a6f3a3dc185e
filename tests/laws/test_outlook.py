"""What an epoch is said to do to windows by their ends alone is what the rules do to each of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples import examples
from tailrace.model.step.outlook import Outlook, outlook, passed_before, stays
from tailrace.model.step.step import WindowsState, step
from tailrace.model.step.transition import Row, Times, Transition
from tailrace.model.triggers.combinators import AfterWatermark
from tailrace.model.triggers.trigger import AfterCount, AfterDelay
from tests.support.cases.strategies import epochs, pipelines


def times(pipeline: Pipeline, before: Clock, clock: Clock) -> Times:
    signals = {name: name in clock.signals for name in pipeline.when.signals()}
    return Times(before.watermark, clock.watermark, before.processing_time, clock.processing_time, signals)


def changes(pipeline: Pipeline, row: Row, end: int, at: Times) -> bool:
    return bool(Transition(pipeline, Scalars()).changes_without_records(row, end, at))


@given(data=st.data())
def test_a_window_that_ends_later_is_changed_as_the_outlook_says(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    state, rows = WindowsState(), list[tuple[int, Row]]()
    for records, clock in data.draw(epochs(pipeline, ends=False)):
        state = step(pipeline, state, records, clock).state
        rows += [(window.end, row) for windows in state.windows.values() for window, row in windows.items()]
    assume(rows)
    end, row = data.draw(st.sampled_from(rows))
    assume(end < END_OF_TIME)
    last = end - (passed_before(pipeline, 0))
    assume(last > BEGINNING)
    found = outlook(pipeline)
    changed = set()
    for _ in range(4):
        marks = sorted(data.draw(st.tuples(*(st.integers(max(BEGINNING, last - 9_000_000), last),) * 2)))
        nows = sorted(data.draw(st.tuples(*(st.integers(0, 20_000_000),) * 2)))
        names = tuple(name for name in pipeline.when.signals() if data.draw(st.booleans()))
        before, clock = Clock(1, marks[0], nows[0]), Clock(2, marks[1], nows[1], names)
        at = times(pipeline, before, clock)
        changed.add(changes(pipeline, row, end, at))
        if stays(pipeline, at):
            assert not changes(pipeline, row, end, at)
    if found is Outlook.NOTHING:
        assert changed == {False}
    if found is Outlook.SAME:
        assert len(changed) == 1


def test_the_outlook_is_as_near_as_the_definition_lets_it_be() -> None:
    pipeline = examples.figure(10)
    assert outlook(pipeline) is Outlook.NOTHING
    counted = replace(pipeline, when=AfterWatermark(early=AfterCount(2)))
    assert outlook(counted) is Outlook.SAME
    waiting = replace(pipeline, when=AfterWatermark(early=AfterDelay(timedelta(minutes=1))))
    assert outlook(waiting) is Outlook.ANY
    # A minute that does not end between two epochs has nothing fire.
    each = examples.figure(7)
    assert outlook(each) is Outlook.ANY
    assert stays(each, Times(0, 1, 61_000_000, 62_000_000))
    assert not stays(each, Times(0, 1, 59_000_000, 61_000_000))
