"""The trace of a record in a pipeline: for each window of the record, the panes and the answer that count the
record.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.lake.catalog.run import Run
from tailrace.model.base.time import instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE
from tailrace.model.step.stages import record_of
from tailrace.model.windows.panes import Accumulation, Key, Version
from tailrace.model.windows.windows import Window
from tailrace.trace.key_history import History, LedgerPane
from tailrace.trace.ledgers import Ledgers
from tailrace.trace.steps import InWindow, Record, State, Step, left_out


def in_windows(pipeline: Pipeline, record: Record, ledgers: Ledgers) -> Iterator[Step]:
    """Yield the outcomes of a record in the windows of a pipeline."""
    prepared = pipeline.prepared(record)
    yield from left_out(pipeline.name, prepared)
    for one in prepared.records:
        key, at = tuple(one.get(name) for name in pipeline.key), instant(one[pipeline.log.event_time])
        for window in pipeline.windows_of(at, one):
            yield _in_window(pipeline, record, ledgers, key, window, at)


def _in_window(pipeline: Pipeline, record: Record, ledgers: Ledgers, key: Key, window: Window, at: int) -> InWindow:
    past = ledgers.history(pipeline, key, at if pipeline.where.merges else window.start)
    place = tuple(record[name] for name in PLACE)
    epoch: int = record["_epoch"]
    late = next((one for one in past.late if one.source == place and one.window.start == window.start), None)
    if pipeline.where.merges:
        window = _session(past, window, at)
    run = _taking_in(ledgers.backfills(pipeline.name), window, epoch)

    def counts(version: Version) -> bool:
        """Return True if a pane with this version counts the record.

        A late record that a backfill has included is counted in the panes of this backfill and of later generations.
        Any other late record is not counted.
        """
        if late is None:
            return version.epoch >= epoch
        return run is not None and version.generation >= run.generation

    answer = past.answer(window)
    panes = [one for one in past.panes if one.window == window and not one.retraction and counts(one.version)]
    if pipeline.how is Accumulation.DISCARDING:
        # In discarding mode, at most one pane counts the record: the first pane that fired after the record had been
        # added to the window.
        panes = panes[:1]
    # If a backfill has computed the window from all records, the answer includes this record, whatever the answer's
    # epoch is.
    counted = answer is not None and (run is not None or (late is None and counts(answer.version)))
    if counted:
        state = State.COUNTED
    elif late is not None and run is None:
        state = State.LATE
    else:
        state = State.WAITING if pipeline.closes(window.end) > past.watermark else State.GONE
    return InWindow(
        pipeline.name,
        key,
        window,
        state,
        late,
        None if late is None else run,
        tuple(panes),
        answer,
        _passed_on(pipeline, key, window, answer) if counted and answer is not None else None,
    )


def _session(past: History, window: Window, at: int) -> Window:
    """Return the session that now contains an instant.

    If several sessions contain the instant, the longest session with an answer is returned. If no session that contains
    the instant has an answer, the longest session in the history that contains the instant is returned. If the history
    has no such session, `window` is returned.
    """
    within = [one for one in past.windows if one.start <= at < one.end]
    answered = [one for one in within if past.answer(one) is not None]
    return max(answered or within or [window], key=lambda one: one.end - one.start)


def _taking_in(backfills: list[Run], window: Window, epoch: int) -> Run | None:
    """Return the first backfill that has computed a window and read the log at least up to `epoch` (V5), or None."""
    having = (run for run in backfills if run.log_epoch is not None and run.log_epoch >= epoch)
    return next((run for run in having if run.first <= window.timestamp < run.last), None)


def _passed_on(pipeline: Pipeline, key: Key, window: Window, answer: LedgerPane) -> Record:
    """Create the record that a later stage receives for an answer of this pipeline."""
    at = window.timestamp if answer.event_time is None else answer.event_time
    made = record_of(pipeline, key, window, answer.answer, at)
    return {**made, **dict(zip(PLACE, (answer.version.epoch, None, None), strict=True))}
