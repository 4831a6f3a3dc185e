"""Random faults that a backfill of open windows puts right, and what the model says of it (rule X4)."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st

from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.correction import Corrected, correct
from tailrace.model.step.reference import ReferenceRun, fold
from tailrace.model.windows.panes import answers
from tests.support.strategies import Epochs, epochs, everything

GENERATION = 7
"""The generation of the run that corrects."""


@dataclass(frozen=True)
class Fault:
    """Epochs of which a stream has lost records, up to the one at `place`, and the correction by the model.

    `made` are all the epochs, whole; `faulty` those that the stream has folded, whose run is `before`.
    """

    made: Epochs
    place: int
    faulty: Epochs
    before: ReferenceRun
    clock: Clock
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
    expected = correct(pipeline, before.state, records, answers(before.panes), GENERATION)
    assume(expected.panes or expected.state != before.state)
    return Fault(made, place, faulty, before, clock, expected)
