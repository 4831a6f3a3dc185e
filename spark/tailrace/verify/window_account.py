"""Compare two accounts of a pipeline's records: one from the log's records, and one from the ledger's rows (rule X6).

The first account assigns the log's records to windows and judges their lateness by the recorded clocks. The second
account has the windows for which the ledger has rows, and the ledger's late rows. Neither account is derived from the
other account, so a row that was removed from the ledger, or added to it, causes a difference.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import Answering
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.table_protocol import BEGINS
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.schema.column_groups import SOURCE, SPAN
from tailrace.lake.schema.contracts import PANE, PARTIAL
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Arrivals, Productions
from tailrace.model.logs.log import PLACE
from tailrace.sql.epoch.partials import is_closed
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.terms import Query, Relation, all_of
from tailrace.verify.audit_checks import in_common
from tailrace.verify.tampering.audit_result import Check

EXPIRED = "expired"
"""The `reason` in a late row if, according to the recorded clocks, the window had closed before the record arrived."""


class WindowAccount:
    """The checks that each record of a pipeline's first stage, up to an epoch, is in a pane or is counted as late.

    `late` is a relation of the ledger's late rows, and `rows` is a relation of all rows of the ledger. `windows` is the
    query of the log's records with their windows, or None if the stream has not read some of the log's records.
    """

    def __init__(
        self, session: Session, answering: Answering, log: Relation, rows: Relation, late: Relation, epoch: int
    ) -> None:
        self.session, self.pipeline, self.rows = session, answering.pipeline, rows
        self._late_rows = late
        streamed = as_streamed(session, self.pipeline, log, epoch)
        # If Python assigns the windows, this takes long for many records, so the audit does it once if it can.
        windows = answering.placed(streamed)
        self.windows = windows if streamed == log else None
        span = list(SPAN)
        placed = f"SELECT {join_items(key_names(self.pipeline), span, list(PLACE))} FROM ({windows})"
        clocks = _clocks(session, self.pipeline, epoch)
        expired = is_closed(self.pipeline, "r.window_end", "c._before")
        self.placed = session.materialized(
            Query(f"SELECT r.*, c._before IS NOT NULL AS _known, COALESCE({expired}, false) AS _expired "
                  f"FROM ({placed}) r LEFT JOIN {clocks} c ON r._epoch = c._clock")
        )  # fmt: skip
        spans = ", ".join(f"UNIX_MICROS({name}) AS {name}" for name in SPAN)
        items = join_items(key_names(self.pipeline), [*SOURCE, spans, "reason"])
        self.late = session.materialized(
            Query(f"SELECT {items}, c._clock IS NOT NULL AS _known "
                  f"FROM {late} l LEFT JOIN {clocks} c ON l.source_epoch = c._clock")
        )  # fmt: skip

    def late_as_judged(self) -> Check:
        """Check that the late rows with reason `expired` are exactly the records that the clocks show to be too late.

        The clocks are the recorded clocks of the epochs.
        """
        rows = Relation(f"(SELECT * FROM {self.late} WHERE _known AND reason = '{EXPIRED}')")
        judged = Relation(f"(SELECT * FROM {self.placed} WHERE _known AND _expired)")
        on = dict(
            zip([*SOURCE, *SPAN, *key_names(self.pipeline)], [*PLACE, *SPAN, *key_names(self.pipeline)], strict=True)
        )
        held, found = self.session.count(rows), self.session.count(judged)
        both = in_common(self.session, rows, judged, on)
        detail = f"{held:,} late rows of closed windows, {found:,} by the recorded clocks, {both:,} of them the same"
        return Check("late rows are those that the clocks judge", held == found == both, detail)

    def every_record(self, note: str) -> Check:
        """Check that each record is found for each of its windows: in a window of the ledger, or in a late row.

        `note` is text that is appended to the details of the check.
        """
        total, late = self.session.count(self.placed), self.session.count(self._late_rows)
        within = self.session.count(Relation(f"{self._in_time()} r{self._in_ledger()}"))
        detail = f"{total:,} records in windows of the log = {within:,} in windows of the ledger + {late:,} late{note}"
        return Check("every record is in a window or late", total == within + late, detail)

    def _in_time(self) -> Relation:
        """Return the records that were not too late for their window.

        Lateness is judged by the recorded clocks. If a window's trigger had finished or an epoch's clock is not known,
        the ledger's late rows are used instead.
        """
        place = zip(["r.window_start", *(f"r.{name}" for name in PLACE)],
                    ["l.window_start", *(f"l.{name}" for name in SOURCE)], strict=True)  # fmt: skip
        same = [f"{ours} = {theirs}" for ours, theirs in place][1 if self.pipeline.where.merges else 0 :]
        on = " AND ".join([*same, *filter(None, [equal_in("r", "l", key_names(self.pipeline))])])
        said = f"SELECT * FROM {self.late} WHERE NOT _known OR reason <> '{EXPIRED}'"
        return Relation(f"(SELECT r.* FROM {self.placed} r LEFT ANTI JOIN ({said}) l ON {on} WHERE NOT r._expired)")

    def _in_ledger(self) -> str:
        """Return an SQL clause that selects the records `r` in windows for which the ledger has a pane or a state."""
        if self.pipeline.log.takes_back:
            # If all records of a window are retracted in the epoch in which they arrive, the ledger has no row for this
            # window. So if records can be retracted, all records are selected.
            return ""
        spans = ", ".join(f"UNIX_MICROS({name}) AS {name}" for name in SPAN)
        kinds = f"kind IN ('{PANE}', '{PARTIAL}')"
        windows = f"SELECT DISTINCT {join_items(key_names(self.pipeline), [spans])} FROM {self.rows} WHERE {kinds}"
        if self.pipeline.where.merges:
            inside = ["w.window_start <= r.window_start", "r.window_end <= w.window_end"]
        else:
            inside = [f"w.{name} = r.{name}" for name in SPAN]
        on = " AND ".join([*inside, *filter(None, [equal_in("w", "r", key_names(self.pipeline))])])
        return f" LEFT SEMI JOIN ({windows}) w ON {on}"


def as_streamed(session: Session, pipeline: Pipeline, log: Relation, epoch: int) -> Relation:
    """Return the records that the stream has read, without corrections that runs of other definitions made later."""
    parts = pipeline.log.parts
    if any(isinstance(one, Productions) for one in parts) and not any(isinstance(one, Arrivals) for one in parts):
        return session.materialized(all_of(log_records.streamed_rows(session, pipeline.log, epoch)))
    return log


def _clocks(session: Session, pipeline: Pipeline, epoch: int) -> Relation:
    """Return a relation of the epochs whose clocks are known.

    `_clock` is the epoch, and `_before` is the watermark before the epoch, in microseconds.
    """
    table = ledger_name(pipeline.name)
    known, history = epoch_commits(session.lake, table), commits(session.lake, table)
    found = {one: known[one - 1].clock.watermark for one in known if one - 1 in known and one <= epoch}
    if known and history.whole and BEGINS not in history.all[0].properties:
        found[min(known)] = BEGINNING
    types = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("_clock", "_before")])
    return session.relation_of(pa.table({"_clock": [*found], "_before": [*found.values()]}, schema=types))
