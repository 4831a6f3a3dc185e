"""A definition's step on DuckDB as SQL: nothing in Python per record or per window."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tailrace.engines.duckdb.database.connection import in_one_transaction
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.executions.execution import DuckExecution, Moved, Windows
from tailrace.engines.duckdb.executions.preparation import Connection, Steps, Taken
from tailrace.engines.python.assigned import assigned_windows
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE
from tailrace.sql.epoch.partials import late, may_be_late, may_have_passed, partials, refused
from tailrace.sql.epoch.state_merge import met
from tailrace.sql.epoch.transition_rows import transitions
from tailrace.sql.records.assignment import WINDOWS, keep_clause
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query

MANY = 100_000
"""The number of windows that an epoch takes through the rules from which on their rows are not computed all at once."""


def clock_before(state: Windows) -> Clock:
    """Return the clock by which records are put into windows: its watermark is that before their epoch (rule M1)."""
    return Clock(-1, state.clock.watermark if state.clock else BEGINNING, 0)


class SqlExecution(DuckExecution):
    """The step as SQL."""

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        names = self._names
        self._partials = in_duckdb(partials(pipeline, names["bundle"], names["clock"], by_slices=True))
        self._transitions = in_duckdb(
            transitions(pipeline, met(pipeline, names["awake"], names["partials"], names["clock"], joined=True))
        )
        self._kind = "TABLE"
        self._moved = tuple(self.rows.apart(names["transitions"]))
        text = refused(pipeline, names["bundle"], names["clock"], names["transitions"])
        self._refused = in_duckdb(self.rows.of_late(text)) if pipeline.finishing == "close" else None
        behind = may_have_passed(pipeline, names["bundle"], names["clock"])
        self._late = in_duckdb(self.rows.of_late(late(pipeline, behind, names["clock"])))
        self._remains = in_duckdb(self.rows.state(names["transitions"]))

    def consume(self, bundle: pa.Table, state: Windows) -> Taken:
        taken, names = self._placed(self._prepared(bundle)), self._names
        self._clock(state, clock_before(state))
        self.connection.register(names["bundle"], taken.records)
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {names['partials']} AS {self._partials}")
        late = (lambda _: self.connection.execute(self._late).to_arrow_table()) if taken.records.num_rows else None
        return Taken(taken.records, taken.rejected, self._closest(), late)

    def _closest(self) -> int | None:
        closest: int | None = self._value(f"SELECT MIN(window_end) FROM {self._names['partials']}")
        return closest

    def step(self, state: Windows, taken: Taken, clock: Clock) -> Moved:
        clock.after(state.clock)
        names, execute = self._names, self.connection.execute
        self._clock(state, clock)
        with in_one_transaction(self.connection):
            execute(f"CREATE OR REPLACE TEMP TABLE {names['awake']} AS {self._awake}")
            later = self._count(names["awake"]) + self._count(names["partials"]) >= MANY
            # Many transitions take more memory than all else. Those of one window each are computed for each query.
            kind = "VIEW" if later and not self._by_key else "TABLE"
            if kind != self._kind:
                execute(f"DROP {self._kind} IF EXISTS {names['transitions']}")
            execute(f"CREATE OR REPLACE TEMP {kind} {names['transitions']} AS {self._transitions}")
            rows = self._not_taken(state, taken, clock)
            if not later:
                rows = pa.concat_tables([*map(self._of_transitions, self._moved), rows])
            after = self._stepped(self._remains, state, clock)
        self._kind = kind
        self.connection.unregister(names["bundle"])
        rows = self._with_rejected(rows, taken, clock)
        return Moved(rows, after, self._moved, self._of_transitions) if later else Moved(rows, after)

    def _of_transitions(self, text: Query) -> pa.Table:
        """Return the rows of a query of the transitions, as the ledger has them."""
        return self._answer(in_duckdb(text))

    def _answer(self, text: str) -> pa.Table:
        """Return the rows of a text of DuckDB's dialect, as the ledger has them."""
        return self._typed(self.connection.execute(text).to_arrow_table())

    def _not_taken(self, state: Windows, taken: Taken, clock: Clock) -> pa.Table:
        """Return the ledger's rows of the records that no window took: they came too late, or to one that is done."""
        found = [self.schema.empty_table()]
        if self._refused is not None:
            found.append(self._answer(self._refused))
        # Partials of windows that merge do not say whether some are late.
        if taken.late is not None and may_be_late(self.pipeline, taken.closest, state.clock):
            found.append(self._typed(taken.late(clock)))
        return pa.concat_tables(found)

    def _placed(self, taken: Taken) -> Taken:
        """Add the windows that the definition's own windowing code assigns; a windowing in SQL adds nothing here."""
        return taken

    @property
    def _by_key(self) -> bool:
        return self.pipeline.where.merges


class AssignedExecution(SqlExecution):
    """The step as SQL, over records whose windows the definition's own code assigned, called once for each record.

    Windows that merge do not take this execution: they may merge by a rule of their own.
    """

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        kept = Query(f"SELECT * FROM {self._names['bundle']}{keep_clause(pipeline)}")
        self._records_text = in_duckdb(kept)

    def _placed(self, taken: Taken) -> Taken:
        records = self._queried(taken.records, self._records_text) if self.pipeline.keep is not None else taken.records
        windows, reasons = assigned_windows(self.pipeline, records)
        placed = records.append_column(WINDOWS, windows)
        if reasons.null_count == len(reasons):
            return replace(taken, records=placed)
        # Why a record is rejected, and which one it is, is all that the ledger has of it.
        place = [self.pipeline.log.event_time, *PLACE]
        bad = records.select(place).append_column(FAILED, reasons).filter(reasons.is_valid())
        others = [] if taken.rejected is None else [taken.rejected.select(bad.column_names)]
        return replace(taken, records=placed.filter(reasons.is_null()), rejected=pa.concat_tables([*others, bad]))
