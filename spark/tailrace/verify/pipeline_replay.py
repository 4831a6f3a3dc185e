"""Replay a pipeline's stage: fold recorded epochs again, starting from the state before the first epoch (L3).

The replay reads one fixed snapshot of each table. Therefore, a stream that is running at the same time does not affect
the replay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tailrace.engines.session_protocol import RowGathering, Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.terms import Relation, all_of
from tailrace.verify.kept_tables import check_new, keep_rows
from tailrace.verify.recorded_epochs import Recording, ReplayError, ReplayRange
from tailrace.verify.row_diff import Replayed, compare_rows, pipeline_columns


def replay_pipeline(pipeline: Pipeline, lake: Lake, asked: ReplayRange) -> Replayed:
    """Fold recorded epochs of a stage again, from the state before the first epoch, and compare the resulting rows."""
    started = time.perf_counter()
    recording, first, last, keep = Recording(lake, pipeline), asked.first, asked.last, asked.keep
    if first is not None and first > recording.last:
        raise ReplayError(f"{recording.table} ends with epoch {recording.last}: there is none from {first} on yet")
    if last is not None and first is not None and last < first:
        raise ReplayError(f"there are no epochs from {first} to {last}: pass the first one first")
    if last is not None and last < recording.first:
        recording.check([last])
    # If a new generation has just replaced the ledger, the ledger may have no epoch after the replacement yet. The
    # range of epochs is then empty.
    first, last = recording.first if first is None else first, recording.last if last is None else last
    epochs = range(first, last + 1)
    recording.check(epochs)
    if keep is not None:
        check_new(lake, keep)

    def work(session: Session) -> Replayed:
        gathered = session.gathered(pipeline)
        _fold(recording, session, gathered, epochs, asked.watch)
        mine = f"epoch BETWEEN {first}L AND {last}L AND COALESCE(writer, 'stream') = 'stream'"
        ledger = Relation(f"(SELECT * FROM {recording.ledger(session)} WHERE {mine})")
        columns = pipeline_columns(session, pipeline, ledger)
        counts, differences = compare_rows(session, columns, ledger, gathered.relation)
        if keep is not None:
            contract = ledger_contract(pipeline)
            doc = f"{contract.table}, epochs {first} to {last} folded again"
            keep_rows(session, (replace(contract, table=keep, doc=doc), all_of(gathered.relation)))
        seconds = time.perf_counter() - started
        return Replayed(first, last, recording.last, counts, differences, seconds, session.choice, keep)

    return recording.run("replay", recording.reads(first, last), work)


def _fold(
    recording: Recording[Pipeline],
    session: Session,
    gathered: RowGathering,
    epochs: range,
    watch: Callable[[int], None],
) -> None:
    """Fold the epochs one after another, and collect the resulting rows."""
    side, ledger = session.side(recording.definition), recording.snapshots[recording.table]

    def after(epoch: int) -> Any:
        """Return the open windows after an epoch, restored from the ledger's partials (stored window states).

        Before the first epoch, there are no open windows.
        """
        if recording.begins(epoch + 1):
            return side.nothing(recording.generation(epoch + 1))
        return side.restored(ledger, recording.clock(epoch), recording.generation(epoch))

    handed = recording.handed(session, epochs)
    state = after(epochs.start - 1)
    for epoch, bundle in zip(epochs, recording.bundles(session, epochs), strict=True):
        watch(epoch)
        # After a backfill has handed over its windows, the stream may have continued in the generation of the backfill
        # (rule V2).
        before = replace(state, generation=recording.generation(epoch))
        stepped = side.step(before, side.consume(bundle, before), recording.clock(epoch))
        gathered.take(stepped, state)
        state = stepped.state
        if epoch in handed and epoch != epochs[-1]:
            gathered.settle()
            state.forget()
            state = after(epoch)
    gathered.settle()
    state.forget()
    side.close()
