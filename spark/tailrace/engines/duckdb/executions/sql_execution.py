"""Run a definition's step on DuckDB entirely in SQL, without calling Python code for each record or window."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import in_one_transaction, single_value
from tailrace.engines.duckdb.database.dialect import in_duckdb, name_of
from tailrace.engines.duckdb.database.scans import parquet_relation
from tailrace.engines.duckdb.executions.execution import DuckExecution, DuckResult
from tailrace.engines.duckdb.executions.preparation import Connection, DuckBundle, Steps
from tailrace.engines.duckdb.executions.shared_groups import SharedGroup, first_end, grouping_of, own_partials
from tailrace.engines.duckdb.executions.shared_work import SharedWork
from tailrace.engines.protocol import EpochState, RecordFiles
from tailrace.engines.python.assigned import assigned_windows
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.partials import may_be_late
from tailrace.sql.records.assignment import WINDOWS, keep_clause
from tailrace.sql.records.selections import is_common, may_fail, query_steps
from tailrace.sql.records.ways import Way, way
from tailrace.sql.terms import Query, Relation, all_of

MANY = 100_000
"""The minimum number of windows that a large epoch affects.

In a large epoch, the step does not compute all ledger rows at once, which saves memory.
"""


def clock_before(state: EpochState) -> Clock:
    """Return the clock that is used to assign an epoch's records to windows.

    The clock contains the watermark from before the epoch (rule M1).
    """
    return Clock(-1, state.watermark, 0)


class SqlExecution(DuckExecution):
    """Executes a definition's step entirely in SQL."""

    _kind = "TABLE"

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        self._group: tuple[SharedWork, int, SharedGroup, dict[str, str]] | None = None
        self._names["given"] = Relation(f"{self._own}_given")
        # If SQL runs all steps and no step rejects records, the steps are a view. Then DuckDB runs them together with
        # the query that reads their records, and computes only the columns that this query needs.
        common = steps is None and all(map(is_common, pipeline.each))
        self._viewed = bool(pipeline.each) and common and self._assigns and not may_fail(pipeline)
        self._by_sql, self._filed = steps is None, False

    def consume(self, bundle: pa.Table | RecordFiles, state: EpochState) -> DuckBundle:
        taken, grouped = self._registered(bundle), self._grouped(bundle)
        return self._aggregated(taken, state, grouped)

    def _aggregated(
        self, taken: DuckBundle, state: EpochState, grouped: tuple[pa.Table, dict[str, str]] | None = None
    ) -> DuckBundle:
        """Aggregate a bundle's registered records by key and window, if `grouped` does not have them already."""
        there = taken.records.num_rows or self._filed
        late = (lambda _: self._answer(self._texts.late)) if there else None
        made = f"CREATE OR REPLACE TEMP TABLE {self._names['partials']} AS"
        if grouped is not None:
            rows, names = grouped
            with register(self.connection, rows) as there:
                self.connection.execute(f"{made} {own_partials(self.pipeline, names, there)}")
            return DuckBundle(taken.records, taken.rejected, first_end(rows), late)
        self._clock(state, clock_before(state))
        self.connection.execute(f"{made} {in_duckdb(self._texts.partials)}")
        return DuckBundle(taken.records, taken.rejected, self._closest(), late)

    def share(self, shared: SharedWork) -> None:
        super().share(shared)
        grouping = grouping_of(self.pipeline) if way(self.pipeline) is Way.SQL else None
        if grouping is None:
            return
        kind = shared.kind("grouping", *grouping)
        group = shared.made(kind, lambda: SharedGroup(self.pipeline, steps_in_query=self._viewed))
        names = group.add(self.pipeline)
        self._group = None if names is None else (shared, kind, group, names)

    @property
    def reads_files(self) -> bool:
        """True if the queries themselves can read the records: there are no steps, or the steps are such a view.

        Definitions that aggregate together read the records from memory, so that they are read once.
        """
        in_sql = way(self.pipeline) is Way.SQL and self._by_sql
        reads = in_sql and (self._viewed or not self.pipeline.each)
        return reads and (self._group is None or not self._group[2].shares)

    def _grouped(self, bundle: pa.Table | RecordFiles) -> tuple[pa.Table, dict[str, str]] | None:
        """Return the rows that several definitions have aggregated together, and the names of this one's parts.

        Returns None if this definition shares no rows, or if the rows could not be computed: one of the definitions may
        have a fault.
        """
        if self._group is None:
            return None
        shared, kind, group, names = self._group
        if not isinstance(bundle, pa.Table) or not group.shares or not shared.has(bundle):
            return None

        def compute() -> pa.Table:
            return group.aggregate(self.connection, bundle if self._viewed else self._prepared(bundle).records)

        try:
            return shared.once(bundle, kind, compute, lambda rows: int(rows.nbytes)), names
        except duckdb.Error:
            return None

    def add_up(self, bundle: pa.Table, state: EpochState) -> tuple[pa.Table, bool]:
        """Aggregate a bundle's records by key and window. Return the result and a boolean.

        The boolean is true if some of the bundle's records are late. `state` is the state before the bundle's epoch.
        """
        taken = self.consume(bundle, state)
        try:
            rows = self.connection.execute(f"SELECT * FROM {self._names['partials']}").to_arrow_table()
            return rows, self._late(state, taken, clock_before(state)).num_rows > 0
        finally:
            self._unregister()

    def _registered(self, bundle: pa.Table | RecordFiles) -> DuckBundle:
        """Run the steps on a bundle, and make the relation of the records that the queries read."""
        self._filed = isinstance(bundle, RecordFiles)
        if isinstance(bundle, RecordFiles):
            columns, read = list(bundle.columns), self._read
            items = ", ".join(map(name_of, columns))
            self.connection.execute(
                f"CREATE OR REPLACE TEMP VIEW {read} AS SELECT {items} FROM {parquet_relation(bundle.paths)}"
            )
            if self._viewed:
                self._view(columns)
            return DuckBundle(bundle.schema.empty_table().select(columns), None)
        if not self._viewed:
            taken = self._placed(self._prepared(bundle))
            self.connection.register(self._names["bundle"], taken.records)
            return taken
        self.connection.register(self._names["given"], bundle)
        self._view(bundle.column_names)
        return DuckBundle(bundle, None)

    @property
    def _read(self) -> Relation:
        """The relation of the records before the steps."""
        return self._names["given" if self._viewed else "bundle"]

    def _view(self, columns: Sequence[str]) -> None:
        """Make a view of the steps on the records, which have these columns."""
        made = query_steps(self.pipeline, self._names["given"], columns)
        assert made is not None, "every step can be written in SQL"
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {self._names['bundle']} AS {in_duckdb(all_of(made))}")

    def _unregister(self) -> None:
        if self._filed:
            self.connection.execute(f"DROP VIEW IF EXISTS {self._read}")
        else:
            self.connection.unregister(self._read)

    def _closest(self) -> int | None:
        text = f"SELECT MIN(window_end) FROM {self._names['partials']}"
        closest: int | None = single_value(self.connection, text)
        return closest

    def step(self, state: EpochState, bundle: DuckBundle, clock: Clock) -> DuckResult:
        clock.after(state.clock)
        names, execute, texts = self._names, self.connection.execute, self._texts
        self._clock(state, clock)
        with in_one_transaction(self.connection):
            awake = self._changed(f"CREATE OR REPLACE TEMP TABLE {names['touched']} AS {self._touched}")
            later = awake + self._count(names["partials"]) >= MANY
            # A table of the windows' transitions in a large epoch would need more memory than all other data. So for a
            # large epoch, the transitions are a view, which computes them again for each query. If windows merge, the
            # transitions are always a table, and if code of one's own combines, so that it is called once.
            kind = "VIEW" if later and self._again else "TABLE"
            if kind != self._kind:
                execute(f"DROP {self._kind} IF EXISTS {names['transitions']}")
            execute(f"CREATE OR REPLACE TEMP {kind} {names['transitions']} AS {in_duckdb(texts.transitions)}")
            rows = self._late(state, bundle, clock)
            if texts.refused is not None:
                rows = pa.concat_tables([self._answer(texts.refused), rows])
            if not later:
                rows = pa.concat_tables([*map(self._answer, texts.ledger), rows])
            after = self._stepped(in_duckdb(texts.remaining), awake, state, clock)
        self._kind = kind
        self._unregister()
        rows = self._with_rejected(rows, bundle, clock)
        return DuckResult(rows, after, tuple(texts.ledger), self._answer) if later else DuckResult(rows, after)

    def _answer(self, text: Query) -> pa.Table:
        """Return the rows of a query, with the columns and types of the ledger."""
        return self._typed(self.connection.execute(in_duckdb(text)).to_arrow_table())

    def _late(self, state: EpochState, bundle: DuckBundle, clock: Clock) -> pa.Table:
        """Return the ledger rows of the records that are late in an epoch."""
        # Skip the query for late records if certainly no record is late. The partials cannot prove this if windows
        # merge.
        if bundle.late is None or not may_be_late(self.pipeline, bundle.closest, state.clock):
            return self.schema.empty_table()
        return self._typed(bundle.late(clock))

    @property
    def _again(self) -> bool:
        """Whether the transitions of a large epoch may be computed again for each query."""
        return not self._by_key

    _assigns = True
    """Whether the queries assign the records to windows."""

    def _placed(self, bundle: DuckBundle) -> DuckBundle:
        """Add the windows that user-defined windowing code assigns to each record.

        This base method does nothing, because the windows are assigned in SQL.
        """
        return bundle

    @property
    def _by_key(self) -> bool:
        return self.pipeline.where.merges


class AssignedExecution(SqlExecution):
    """Executes a definition's step in SQL, after user-defined code has assigned windows to each record.

    The code is called once per record. Windows that merge do not use this execution, because user-defined code may
    define its own rule for merging windows.
    """

    _assigns = False

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        kept = Query(f"SELECT * FROM {self._names['bundle']}{keep_clause(pipeline)}")
        self._records_text = in_duckdb(kept)

    def _placed(self, bundle: DuckBundle) -> DuckBundle:
        records = (
            self._queried(bundle.records, self._records_text) if self.pipeline.keep is not None else bundle.records
        )
        windows, reasons = assigned_windows(self.pipeline, records)
        return bundle.judged(self.pipeline.log.event_time, records.append_column(WINDOWS, windows), reasons)
