"""The backfill of a map: compute the rows of a range from the log, and compare them with the ledger's rows (rule V4).

A record belongs to the range that contains its event time (V5). A map has no windows that are open to a stream, so a
run takes no lease: the run retracts the rows that differ and writes correct rows in its own generation, while a stream
may run.
"""

from __future__ import annotations

from tailrace.backfill.range_run import (
    NOTHING,
    Found,
    RangeBackfill,
    RangeRun,
    RowsRun,
    folded_head,
    found_new,
    version_as_of,
)
from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import map_output
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.read.file_bounds import bounds
from tailrace.lake.schema.filters import Filter
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import Log
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import Query, bracketed


class MapBackfill(RangeBackfill[Map]):
    """The backfill of a map over a range of event time."""

    def reads(self) -> list[tuple[str, Filter]]:
        epoch = folded_head(self.lake, self.definition).number("epoch")
        return log_records.tables_of_log(self.lake, self.definition.log, epoch, *_bounds(self.first, self.last))

    def runs(self, session: Session) -> list[tuple[Map, list[RangeRun[Map]]]]:
        pinned = folded_head(self.lake, self.definition)
        return [(self.definition, [MapRun(session, self.definition, self.first, self.last, pinned)])]


class MapRun(RowsRun[Map]):
    """The run of a map over a range of event time."""

    def compute(self, run: Run, pinned: Head) -> Found:
        if self._held():
            return self.differences(run, pinned)
        # If the ledger has no rows in the range, the computed rows are written without a comparison, and are counted
        # from the written files.
        rows = output_rows(self.definition)
        new = rows.corrected(bracketed(rows.new(self._mapped(pinned))), version_as_of(run, pinned))
        files = self.session.files(new, self.ledger, self._times(pinned))
        if files is None:
            return self.differences(run, pinned)
        return found_new(files)

    def differences(self, run: Run, pinned: Head) -> Found:
        computed = self._mapped(pinned)
        if not self._held():
            return self._new(computed)
        return self.compare(computed, pinned.number("epoch"))

    def _mapped(self, pinned: Head) -> Query:
        """Return a query that applies the map to the log's records in the range, up to the epoch of the pinned
        commit.
        """
        log, epoch, (first, last) = self.definition.log, pinned.number("epoch"), _bounds(self.first, self.last)
        return map_output(self.session, self.definition, log_records.rows_of_log(self.session, log, epoch, first, last))

    def _times(self, pinned: Head) -> tuple[int, int] | None:
        """Return bounds of the event times of the log's records in the range, from the statistics of the log's files.

        Returns None if they are unknown. The time of a map's row is the event time of its record.
        """
        log, bounds_ = self.definition.log, _bounds(self.first, self.last)
        if type(log) is not Log:
            return None
        ((name, where),) = log_records.tables_of_log(self.lake, log, pinned.number("epoch"), *bounds_)
        table = self.lake.table(name)
        at = next((field for field in table.schema().fields if field.name == log.event_time), None)
        return None if at is None else bounds((task.file for task in table.scan(row_filter=where).plan_files()), at)

    def _held(self) -> bool:
        """Return True if the ledger may have rows in the range, according to the statistics of the ledger's files."""
        return any(True for _ in self.lake.table(self.ledger).scan(row_filter=self.in_ledger()).plan_files())

    def _new(self, computed: Query) -> Found:
        """Count every computed row as new. The caller must make sure that the ledger has no rows in the range."""
        text = output_rows(self.definition).new(computed)
        if not self.session.direct:
            return self.count_changes(text)
        # Without Spark, counting the rows reads only the columns that the condition needs. The other columns are read
        # when the rows are written.
        relation = self.session.view(text)
        return Found(relation, {**NOTHING, "changed": self.session.count(relation)})


def _bounds(first: int, last: int) -> tuple[int | None, int | None]:
    """Return the bounds of a range of event time. A bound is None if the range is unlimited in that direction."""
    return None if first <= BEGINNING else first, None if last >= END_OF_TIME else last
