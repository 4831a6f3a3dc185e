"""The link between two stages of a definition: the panes of a stage are the records of the next stage.

A pane becomes a record with the pane's key, window and results, and a retraction retracts such a record. So the later
stage's records, without the retracted ones, are always the earlier stage's current answers. The records and the answers
agree even if a correction moves an answer to another key or another window of the later stage (Dataflow Model, 2.3, on
several groupings in a row).
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
    """Convert a stage's panes to the records that the next stage reads.

    The sign of a record is 1, or -1 if the pane is a retraction.
    """
    made = []
    for pane in panes:
        at = pane.window.timestamp if pane.timestamp is None else pane.timestamp
        made.append(record_of(pipeline, pane.key, pane.window, pane.values, at, -1 if pane.retraction else 1))
    return made


def watermark(pipeline: Pipeline, state: WindowsState, before: Clock | None) -> int:
    """Return a later stage's watermark: the earlier stage's watermark, unless open windows hold it back (rule T3).

    An open window of the earlier stage can hold a timestamp: the later stage's watermark does not pass this timestamp.
    `state` is the earlier stage's state after the epoch. `before` is the later stage's last clock; the result is never
    lower than the watermark in `before`.

    If window A was merged into window B, window B holds the timestamp of A's answer until this answer is retracted. If
    an answer's timestamp is the event time of a record, the window holds this timestamp until the window has fired on
    time. If the definition's windows merge, the window holds such a timestamp longer, until no further record can
    change the window, because a merge retracts the earlier answer.
    """
    assert state.clock is not None
    rows = [row for windows in state.windows.values() for row in windows.values()]
    reached = min([state.clock.watermark, *(at for row in rows for at in _held(pipeline, row))])
    return max(reached, BEGINNING if before is None else before.watermark)


def _held(pipeline: Pipeline, row: Row) -> Iterator[int]:
    """Yield the timestamps, in microseconds, at which an open window holds back the later stage's watermark."""
    stamp = pipeline.stamp
    for old in row["predecessors"] if pipeline.where.merges else ():
        yield old.window.timestamp if stamp is None else old.fired[stamp]
    if stamp is not None and (pipeline.where.merges or not row["settled"]):
        yield from (at for at in (row[f"fired_{stamp}"], row[f"pending_{stamp}"]) if at is not None)


def record_of(
    pipeline: Pipeline, key: Key, window: Window, values: Mapping[str, Any], at: int, sign: int = 1
) -> Record:
    """Create a later stage's record from an answer; `at` is the record's event time, in microseconds."""
    record = dict(zip(pipeline.key, key, strict=True)) | dict(values)
    record |= {"window_start": moment(window.start), "window_end": moment(window.end)}
    return record | {PANE_TIME: moment(at), SIGN: sign}
