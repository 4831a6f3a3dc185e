"""The link between the stages of one definition: a stage's panes are the next stage's records.

A pane is a record of its key, its window and its results, and a retraction takes such a record back. So a later stage
always has the records of the earlier stage's current answers, also where a correction puts an answer under another key
or in another window (Dataflow Model, 2.3, on several groupings in a row).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME, SIGN
from tailrace.model.step.step import Record, WindowsState
from tailrace.model.step.transition import Row
from tailrace.model.windows.panes import Key, Pane
from tailrace.model.windows.windows import Window


def changes(pipeline: Pipeline, panes: Iterable[Pane]) -> list[Record]:
    """Turn a stage's panes into the records that a later stage reads, each with its sign."""
    made = []
    for pane in panes:
        at = pane.window.timestamp if pane.timestamp is None else pane.timestamp
        made.append(record_of(pipeline, pane.key, pane.window, pane.values, at, -1 if pane.retraction else 1))
    return made


def watermark(pipeline: Pipeline, state: WindowsState, before: Clock | None) -> int:
    """Return a later stage's watermark after an epoch: the stage's own, or its oldest held timestamp if older (T3).

    `state` is the stage's after the epoch, and `before` the later stage's clock, since its watermark never goes back.

    A window that merged away holds the timestamp of its answer until that answer is taken back. Where answers have
    another timestamp than the window's end, a window holds its answer's timestamp until it has fired on time; a window
    that merges holds it until it is out of reach, since a merge takes the earlier answer back.
    """
    assert state.clock is not None
    rows = [row for windows in state.windows.values() for row in windows.values()]
    reached = min([state.clock.watermark, *(at for row in rows for at in _held(pipeline, row))])
    return max(reached, BEGINNING if before is None else before.watermark)


def _held(pipeline: Pipeline, row: Row) -> Iterator[int]:
    """Yield the timestamps that an open window holds, in microseconds."""
    stamp = pipeline.stamp
    for old in row["predecessors"] if pipeline.where.merges else ():
        yield old.window.timestamp if stamp is None else old.fired[stamp]
    if stamp is not None and (pipeline.where.merges or not row["settled"]):
        yield from (at for at in (row[f"fired_{stamp}"], row[f"pending_{stamp}"]) if at is not None)


def record_of(
    pipeline: Pipeline, key: Key, window: Window, values: Mapping[str, Any], at: int, sign: int = 1
) -> Record:
    """Make the record of an answer for a later stage; `at` is its event time, in microseconds."""
    record = dict(zip(pipeline.key, key, strict=True)) | dict(values)
    record |= {"window_start": moment(window.start), "window_end": moment(window.end)}
    return record | {PANE_TIME: moment(at), SIGN: sign}
