"""The correction, by a backfill, of all stages of a definition, one after the other (rules V4 and X4).

A later stage's state adds up the answers that the stage before it stands by, for each pane adds to it or takes back. So
a correction of one stage is one of the next as well: each stage is compared with the answers that stand once the stage
before it is right, and the stream then takes back no answer that the next stage has not had.
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
        records = standing(stage, (*own, *one.panes))
    return tuple(found)


def standing(pipeline: Pipeline, panes: Iterable[Pane]) -> list[Record]:
    """Return the records that a later stage has of a stage's panes, less those that were taken back."""
    stand = dict[tuple[Key, Window], Pane]()
    for pane in panes:
        stand.pop((pane.key, pane.window), None)
        if not pane.retraction:
            stand[pane.key, pane.window] = pane
    return changes(pipeline, stand.values())
