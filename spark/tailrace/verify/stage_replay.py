"""A replay: the recorded epochs of a stage are folded again, and compared with its ledger row for row (law L3).

A replay starts from the state before the first epoch and takes the recorded clocks, in one session of either engine.
Its rows are gathered outside the lake's tables, and then compared with the ledger in SQL. It reads one snapshot of each
table and takes no lease, so a stream can run at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.engines.choose import EngineChoice
from tailrace.engines.session_protocol import RowGathering, Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.terms import Relation, all_of
from tailrace.verify.kept_tables import check_new, kept_in
from tailrace.verify.recorded_epochs import Recording, ReplayError
from tailrace.verify.row_diff import RowCount, RowDifference, compared


@dataclass(frozen=True)
class Replayed:
    """The result of a replay of the epochs `first` to `last`; `latest` is the last epoch of the ledger.

    `counts` is by the ledger's kinds of rows, with retractions apart from panes. `table` names the table that holds the
    replayed rows, where they were kept.
    """

    first: int
    last: int
    latest: int
    counts: Mapping[str, RowCount]
    differences: tuple[RowDifference, ...]
    seconds: float
    engine: EngineChoice
    table: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the replay gave exactly the ledger's rows, each as often."""
        return all(count.ledger == count.replay == count.same for count in self.counts.values())


def replay(
    lake: Lake,
    pipeline: Pipeline,
    first: int | None = None,
    last: int | None = None,
    *,
    keep: str | None = None,
    watch: Callable[[int], None] = lambda epoch: None,
) -> Replayed:
    """Fold the epochs `first` to `last` of one stage again; by default from the first to the last of the ledger.

    `keep` names a new table for the replayed rows; `watch` is called with each epoch as it begins. Raises `ReplayError`
    where an epoch is not in the ledger, its clock is not known any more, or a table `keep` exists, and the errors of
    `Recording`.
    """
    started = time.perf_counter()
    recording = Recording(lake, pipeline)
    if first is not None and first > recording.last:
        raise ReplayError(f"{recording.table} ends with epoch {recording.last}: there is none from {first} on yet")
    if last is not None and last < (recording.first if first is None else first):
        raise ReplayError(
            f"there are no epochs from {recording.first if first is None else first} to {last}: expected the first one "
            "first, and none before a generation was put in place"
        )
    # There may be none yet since a generation was put in place.
    first, last = recording.first if first is None else first, recording.last if last is None else last
    epochs = range(first, last + 1)
    recording.check(epochs)
    if keep is not None:
        check_new(lake, keep)

    def work(session: Session) -> Replayed:
        gathered = session.gathered(pipeline)
        _fold(recording, session, gathered, epochs, watch)
        mine = f"epoch BETWEEN {first}L AND {last}L AND COALESCE(writer, 'stream') = 'stream'"
        ledger = Relation(f"(SELECT * FROM {recording.ledger(session)} WHERE {mine})")
        counts, differences = compared(session, pipeline, ledger, gathered.relation)
        if keep is not None:
            contract = ledger_contract(pipeline)
            doc = f"{contract.table}, epochs {first} to {last} folded again"
            kept_in(session, (replace(contract, table=keep, doc=doc), all_of(gathered.relation)))
        seconds = time.perf_counter() - started
        return Replayed(first, last, recording.last, counts, differences, seconds, session.choice, keep)

    return recording.run("replay", recording.reads(first, last), work)


def _fold(
    recording: Recording, session: Session, gathered: RowGathering, epochs: range, watch: Callable[[int], None]
) -> None:
    """Fold the epochs one after another, and gather their rows."""
    side, ledger = session.side(recording.pipeline), recording.snapshots[recording.table]

    def after(epoch: int) -> Any:
        """Return the open windows after an epoch, restored from the ledger's partials; none before the first epoch."""
        if recording.begins(epoch + 1):
            return side.nothing(recording.generation(epoch + 1))
        return side.restored(ledger, recording.clock(epoch), recording.generation(epoch))

    handed = recording.handed(session, epochs)
    state = after(epochs.start - 1)
    for epoch, bundle in zip(epochs, recording.bundles(session, epochs), strict=True):
        watch(epoch)
        # After a backfill's handover the stream may have gone on in the backfill's generation (rule V2).
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
