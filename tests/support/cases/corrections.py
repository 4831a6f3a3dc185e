"""Random faults that a backfill of open windows puts right, and what the model says of it (rule X4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.reference import ReferenceRun, fold
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import answers
from tailrace.model.windows.windows import Window
from tests.support.cases.strategies import Epochs, epochs, everything
from tests.support.checks.window_correction import Corrected, correct

GENERATION = 7
"""The generation of the run that corrects."""


@dataclass(frozen=True)
class Fault:
    """Epochs of which a stream has lost records, up to the one at `place`, and the correction by the model.

    `made` are all the epochs, whole; `faulty` those that the stream has folded, whose run is `before`. The correction
    is of the windows in `range`.
    """

    made: Epochs
    place: int
    faulty: Epochs
    before: ReferenceRun
    clock: Clock
    range: Window
    expected: Corrected


def drawn_fault(data: st.DataObject, pipeline: Pipeline) -> Fault:
    """Draw a fault that leaves open windows and something to correct."""
    made = data.draw(epochs(pipeline, max_epochs=5))
    lost = data.draw(st.sets(st.integers(0, 12), min_size=1))
    place = data.draw(st.integers(1, len(made)))
    faulty: Epochs = [([r for r in bundle if r["id"] not in lost], clock) for bundle, clock in made[:place]]
    before, records = fold(pipeline, faulty), everything(made[:place])
    clock = before.state.clock
    assume(clock is not None and len(records) >= 3 and before.state.windows)
    assert clock is not None
    range_ = drawn_range(data, records)
    expected = correct(pipeline, before.state, records, answers(before.panes), GENERATION, *range_)
    assume(expected.panes or expected.state != before.state)
    return Fault(made, place, faulty, before, clock, range_, expected)


def drawn_range(data: st.DataObject, records: Sequence[Record]) -> Window:
    """Draw a range of window timestamps: all of time, or a bound among the records' event times, or two."""
    if not data.draw(st.booleans()):
        return Window(BEGINNING, END_OF_TIME)
    times = sorted({instant(one["at"]) + past for one in records for past in (0, 1, 2_000_000)})
    first, last = sorted((data.draw(st.sampled_from(times)), data.draw(st.sampled_from(times))))
    return Window(*data.draw(st.sampled_from([(BEGINNING, last + 1), (first, END_OF_TIME), (first, last + 1)])))
