"""The correction, by a backfill, of all stages of a definition, one after the other (rules V4 and X4).

A later stage's state sums up the answers that it has read from the preceding stage: each pane adds an answer or
retracts an answer. Therefore the state is compared with the answers that the stage has read. The state is not compared
with the answers that follow from the log, because windows of the preceding stage may have answers that are still to
fire. When a backfill corrects answers of a stage that the stream can still reach, the next stage reads the corrections
in the next epoch, like any other pane. So, whenever the backfill ends, no stage misses a correction or reads a
correction twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.stages import changes
from tailrace.model.step.step import Record, WindowsState
from tailrace.model.windows.panes import Key, Pane, answers
from tailrace.model.windows.windows import Window
from tests.support.checks.window_correction import Corrected, correct


def correct_stages(
    pipeline: Pipeline,
    states: Sequence[WindowsState],
    records: Iterable[Record],
    panes: Sequence[Sequence[Pane]],
    generation: int,
) -> tuple[Corrected, ...]:
    """Correct every window of every stage, including windows that the stream can no longer reach.

    `states` and `panes` have one item for each stage, in the order of the stages; `records` are all records of the log.
    """
    found = list[Corrected]()
    for stage, state, own in zip(pipeline.stages, states, panes, strict=True):
        one = correct(stage, state, records, answers(own), generation, closed=True)
        found.append(one)
        assert state.clock is not None
        records = standing_records(stage, (*own, *one.panes), state.clock.epoch)
    return tuple(found)


def standing_records(pipeline: Pipeline, panes: Iterable[Pane], epoch: int) -> list[Record]:
    """Return the records that a later stage has read from panes up to an epoch and that were not retracted by then."""
    stand = dict[tuple[Key, Window], Pane]()
    for pane in panes:
        if pane.version.epoch > epoch or (pane.open and pane.version.epoch == epoch):
            continue
        stand.pop((pane.key, pane.window), None)
        if not pane.retraction:
            stand[pane.key, pane.window] = pane
    return changes(pipeline, stand.values())
