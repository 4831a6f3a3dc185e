"""The correction, by a backfill, of all stages of a definition, one after the other (rules V4 and X4).

A later stage's state adds up the answers of the stage before it that it has read: each pane adds one, or takes one
back. So that is what it is compared with, and not with what the log says of the stage before, whose windows may have
answers yet to fire. What a backfill corrects of a stage while the stream can reach it, the next stage reads with the
next epoch, like any pane: wherever the backfill ends, no stage misses it or has it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.correction import Corrected, correct
from tailrace.model.step.stages import changes
from tailrace.model.step.step import Record, WindowsState
from tailrace.model.windows.panes import Key, Pane, answers
from tailrace.model.windows.windows import Window


def correct_stages(
    pipeline: Pipeline,
    states: Sequence[WindowsState],
    records: Iterable[Record],
    panes: Sequence[Sequence[Pane]],
    generation: int,
) -> tuple[Corrected, ...]:
    """Correct every window of every stage, whether the stream can still reach it or not.

    `states` and `panes` are those of each stage, the first stage's first, and `records` are all that the log holds.
    """
    found = list[Corrected]()
    for stage, state, own in zip(pipeline.stages, states, panes, strict=True):
        one = correct(stage, state, records, answers(own), generation, closed=True)
        found.append(one)
        assert state.clock is not None
        records = standing_records(stage, (*own, *one.panes), state.clock.epoch)
    return tuple(found)


def standing_records(pipeline: Pipeline, panes: Iterable[Pane], epoch: int) -> list[Record]:
    """Return the records that a later stage has read of a stage's panes up to an epoch, and that stand by then."""
    stand = dict[tuple[Key, Window], Pane]()
    for pane in panes:
        if pane.version.epoch > epoch or (pane.open and pane.version.epoch == epoch):
            continue
        stand.pop((pane.key, pane.window), None)
        if not pane.retraction:
            stand[pane.key, pane.window] = pane
    return changes(pipeline, stand.values())
