"""How the stages of one definition go together: a stage's panes are the next one's records.

A pane is a record of its key, its window and its results, and a retraction takes such a record back. So a later stage
has at any time the records of the earlier one's current answers, whatever was corrected, and wherever a correction puts
an answer: under another key, in another window (Dataflow Model, 2.3, on several groupings in a row).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, moment
from tailrace.model.definition.log import PANE_TIME, SIGN
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.step import Record, State
from tailrace.model.step.transition import Row
from tailrace.model.windows.panes import Key, Pane
from tailrace.model.windows.windows import Window


def changes(pipeline: Pipeline, panes: Iterable[Pane]) -> list[Record]:
    """The records that a later stage reads of a stage's panes, each with its sign."""
    made = []
    for pane in panes:
        at = pane.window.timestamp if pane.timestamp is None else pane.timestamp
        made.append(record_of(pipeline, pane.key, pane.window, pane.values, at, -1 if pane.retraction else 1))
    return made


def watermark(pipeline: Pipeline, state: State, before: Clock | None) -> int:
    """The watermark that a later stage has after an epoch: the stage's own, or its oldest held time if older (T3).

    `state` is the stage's after the epoch, and `before` the later stage's clock, for its watermark never goes back.

    A window that merged away holds the timestamp of the answer it has left, until that is taken back. With another
    timestamp than the window's end, a window holds it until it has fired on time; one that merges does until it is out
    of reach, for what it merges with takes back an answer from before.
    """
    assert state.clock is not None
    rows = [row for windows in state.windows.values() for row in windows.values()]
    reached = min([state.clock.watermark, *(at for row in rows for at in _held(pipeline, row))])
    return max(reached, BEGINNING if before is None else before.watermark)


def _held(pipeline: Pipeline, row: Row) -> Iterator[int]:
    """The timestamps that an open window holds, in microseconds."""
    stamp = pipeline.stamp
    for old in row["predecessors"] if pipeline.where.merges else ():
        yield old.window.timestamp if stamp is None else old.fired[stamp]
    if stamp is not None and (pipeline.where.merges or not row["settled"]):
        yield from (at for at in (row[f"fired_{stamp}"], row[f"pending_{stamp}"]) if at is not None)


def record_of(
    pipeline: Pipeline, key: Key, window: Window, values: Mapping[str, Any], at: int, sign: int = 1
) -> Record:
    """An answer as a record of a later stage: it happened at `at`, in microseconds."""
    record = dict(zip(pipeline.key, key, strict=True)) | dict(values)
    record |= {"window_start": moment(window.start), "window_end": moment(window.end)}
    return record | {PANE_TIME: moment(at), SIGN: sign}
