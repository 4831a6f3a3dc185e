"""Try whether a computation's code for a batch does what its code for one record does."""

from __future__ import annotations

from typing import Any

from tailrace.model.base.time import moment
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.model.step.chain_fold import epochs_read
from tailrace.model.step.computation_state import KeysState
from tailrace.model.step.computation_step import step
from tailrace.testing.batch_cuts import BatchError
from tailrace.testing.differences import difference
from tailrace.testing.epochs import Epochs, cut_epochs
from tailrace.testing.folds import Output, folded
from tailrace.testing.tables import Table


def same_by_batch(computation: Computation, epochs: Epochs, *, ends: bool = True) -> Output:
    """Check that `process_batch` does what `process_record` does in each epoch, and return what the computation gives.

    The productions of each epoch are compared, in the order of each key, and the states and timers of all keys after
    the epoch. The arguments are those of `fold`. An error that `process_batch` raises is not caught.

    Raises `BatchError` with what differs.
    """
    __tracebackhide__ = True
    if not computation.batches:
        raise BatchError(f"{computation.name}: no process_batch: expected a computation with one")
    cut = cut_epochs(computation, epochs, ends=ends, allow_rejected=True)
    tables, state = _Tables(computation), KeysState()
    types = {name: computation.log.columns[name] for name in computation.key} | dict(type(computation).produces)
    types |= {PANE_TIME: "timestamp", "place": "bigint"}
    for records, clock in epochs_read(computation, cut.epochs):
        before, (state, made, _, rejected, _) = state, step(computation, state, records, clock)
        expected = tuple((*one.key, *one.values.values(), moment(one.at), one.place) for one in made)
        given, keys, reasons = tables.step(records, before.clock, clock)
        found = difference(Table(tuple(types), expected), given, list(types.values()), about=computation.key)
        if not found.same:
            lines = found.lines("by process_record", "by process_batch")
            raise BatchError(
                "\n".join([f"epoch {clock.epoch}: {computation.name} gives other records by batch", *lines])
            )
        for key in {**keys, **state.keys} if keys != state.keys else ():
            one, other = state.keys.get(key), keys.get(key)
            if one != other:
                raise BatchError(
                    f"epoch {clock.epoch}: key {key} of {computation.name} has another state by batch:\n"
                    f"- by process_record   {one}\n+ by process_batch    {other}"
                )
        if sorted(reasons) != sorted(one.reason for one in rejected):
            raise BatchError(f"epoch {clock.epoch}: {computation.name} rejects other records by batch: {reasons}")
    return folded(computation, cut, allow_rejected=True)


class _Tables:
    """The keys of a computation, as an engine has them: as Arrow tables."""

    def __init__(self, computation: Computation) -> None:
        import pyarrow as pa

        from tailrace.ingest.column_types import column_type
        from tailrace.lake.schema.computation_tables import computation_contract
        from tailrace.lake.schema.iceberg_types import arrow_schema, iceberg_schema
        from tailrace.sql.epoch.key_state import key_row_types

        self.computation = computation
        self.ledger = iceberg_schema(computation_contract(computation)).as_arrow()
        self.states = arrow_schema(key_row_types(computation))
        columns = [(name, column_type(type).arrow) for name, type in computation.record_columns.items()]
        places = zip(PLACE, (pa.int64(), pa.string(), pa.int64()), strict=True)
        self.records = pa.schema([*columns, *places])
        self.held = self.states.empty_table()

    def step(self, records: Any, before: Any, clock: Any) -> tuple[list[tuple[Any, ...]], dict[Any, Any], list[str]]:
        """Fold an epoch by columns; return the productions, the states of all keys, and the reasons of rejections."""
        import pyarrow as pa

        from tailrace.engines.python import columns
        from tailrace.engines.python.keys import KeyStep, keys_of

        step = KeyStep(self.computation, clock, before, self.states, self.ledger, tries=True)
        # Records of a test may lack columns.
        rows = [{name: one.get(name) for name in self.records.names} for one in records]
        made = step(self.held, pa.Table.from_batches([columns.batch_of(rows, self.records)]), None)
        self.held = made.states
        names = (*self.computation.key, *type(self.computation).produces, PANE_TIME, "source_offset")
        kinds = made.ledger["kind"].to_pylist()
        told = columns.rows((made.ledger[name] for name in names), made.ledger.num_rows)
        given = [row for kind, row in zip(kinds, told, strict=True) if kind == "production"]
        reasons = [one for one in made.ledger["reason"].to_pylist() if one is not None]
        return given, keys_of(self.computation, made.states), reasons
