"""Advance open windows by one epoch: apply the model's step, which is written in Python, to Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace.engines.python import columns
from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.lake.schema.contracts import LATE, PANE, PARTIAL, REJECTED
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE
from tailrace.model.step.step import Predecessor, WindowsState, step
from tailrace.model.step.transition import Row, Transition
from tailrace.model.windows.panes import Key, Late, Pane, Rejected
from tailrace.model.windows.windows import Window


class WindowRows(NamedTuple):
    """The result of an epoch for some keys: the windows that remain open, and rows for the ledger."""

    open: pa.Table
    ledger: pa.Table


@dataclass(frozen=True)
class PythonStep:
    """The step of one epoch for some keys.

    The input consists of two Arrow tables: the keys' open windows, and the keys' records. `open` is the schema of an
    open window, and `ledger` is the schema of a ledger row.
    """

    pipeline: Pipeline
    clock: Clock
    before: Clock | None
    generation: int
    open: pa.Schema
    ledger: pa.Schema

    def __call__(self, held: pa.Table, bundle: pa.Table) -> WindowRows:
        with no_search_for_cycles():
            # The step runs in a separate function, so the step's objects are freed before the garbage collector is
            # turned on and searches them.
            return self._stepped(held, bundle)

    def _stepped(self, held: pa.Table, bundle: pa.Table) -> WindowRows:
        state = WindowsState(self._windows(held), self.before, self.generation)
        outcome = step(self.pipeline, state, columns.mappings(bundle), self.clock, prepared=True)
        remaining = columns.batch_of(list(self._remaining(outcome.state)), self.open)
        # Each kind of ledger row gets its own batch. All rows of a batch have the same columns, so the other columns
        # can be set to null for the whole batch at once.
        kinds = [
            self._partials(state, outcome.state),
            map(self._pane, outcome.panes),
            map(self._late, outcome.late),
            map(self._rejected, outcome.rejected),
        ]
        batches = [columns.batch_of(list(rows), self.ledger) for rows in kinds]
        return WindowRows(pa.Table.from_batches([remaining]), pa.Table.from_batches(batches))

    @cached_property
    def _rules(self) -> Transition:
        return Transition(self.pipeline, Scalars())

    def _windows(self, held: pa.Table) -> dict[Key, dict[Window, Row]]:
        names = list(self._rules.columns())
        windows: dict[Key, dict[Window, Row]] = {}
        for held_row in held.to_pylist():
            row = {name: held_row[name] for name in names}
            row["predecessors"] = tuple(
                Predecessor(
                    Window(old["window_start"], old["window_end"]),
                    old["generation"],
                    old["panes"],
                    self._unpacked(old),
                )
                for old in held_row.get("predecessors") or ()
            )
            key = tuple(held_row[name] for name in self.pipeline.key)
            windows.setdefault(key, {})[Window(held_row["window_start"], held_row["window_end"])] = row
        return windows

    def _remaining(self, state: WindowsState) -> Iterator[Row]:
        for key, windows in state.windows.items():
            for window, row in windows.items():
                yield self._place(key, window) | row | {"predecessors": self._predecessors(row)}

    def _partials(self, before: WindowsState, after: WindowsState) -> Iterator[Row]:
        """Yield a partial (state row) for each changed open window, and a `gone` partial for each removed window.

        A removed window is no longer open although it has not expired: for example, it was merged into another window.
        """
        for key in {**before.windows, **after.windows}:
            old, new = before.windows.get(key, {}), after.windows.get(key, {})
            for window, row in new.items():
                if old.get(window) != row:
                    yield self._partial(key, window, row)
            for window, row in old.items():
                if window not in new and not self._rules.out_of_reach(window.end, self.clock.watermark):
                    yield self._ledger_row(PARTIAL, key, window, generation=row["generation"], gone=True)

    def _partial(self, key: Key, window: Window, row: Row) -> Row:
        partial = self._ledger_row(
            PARTIAL, key, window, generation=row["generation"], pane_index=row["panes"], gone=False
        )
        partial |= {name: row[name] for name in ("fresh", "fresh_on_time", "waiting_since", "settled")}
        for which in ("fired", "pending"):
            partial[which] = self._packed({name: row[f"{which}_{name}"] for name in self.pipeline.parts})
        partial["trigger"] = {f"trigger_{name}": row[f"trigger_{name}"] for name in self.pipeline.when.slots()}
        return partial | {"predecessors": self._predecessors(row)}

    def _predecessors(self, row: Row) -> list[Row]:
        return [
            {
                "window_start": old.window.start,
                "window_end": old.window.end,
                "generation": old.generation,
                "panes": old.panes,
                **self._packed(old.fired),
            }
            for old in row["predecessors"]
        ]

    def _pane(self, pane: Pane) -> Row:
        version = {"generation": pane.version.generation, "pane_index": pane.version.index}
        row = self._ledger_row(PANE, pane.key, pane.window, **version, timing=pane.timing.value, writer=pane.writer)
        row |= {"retraction": pane.retraction, "watermark": pane.watermark, **pane.values, "answer": pane.answer}
        row |= {"event_time": pane.timestamp, "is_last": pane.is_last}
        pending = self._rules.discards and not pane.retraction and pane.parts is not None
        return row | ({"pending": self._packed(pane.parts)} if pending else {})

    def _packed(self, parts: Mapping[str, Any]) -> Row:
        """Convert an accumulator to the columns in which tables store it (`sql.epoch.part_columns`)."""
        row = self._rules.levelled(parts)
        for name in self._kept:
            whole, o = row[name], Scalars()
            row[name], row[f"{name}_over"] = o.narrow(whole), o.beyond(whole)
        return row

    def _unpacked(self, kept: Mapping[str, Any]) -> Row:
        """Build an accumulator from the columns in which a table stores it."""
        row = {name: kept[name] for name in self.pipeline.parts}
        return row | {name: kept[f"{name}_over"] for name in self._kept if row[name] is None}

    @cached_property
    def _kept(self) -> list[str]:
        return [name for name, part in self.pipeline.parts.items() if part.kept]

    def _late(self, late: Late) -> Row:
        before = self.before.watermark if self.before else None
        row = self._ledger_row(LATE, late.key, late.window, watermark=before, behind=late.behind, reason=late.reason)
        return row | self._source(late.record)

    def _rejected(self, rejected: Rejected) -> Row:
        return self._of_epoch(REJECTED) | {"reason": rejected.reason} | self._source(rejected.record)

    def _source(self, record: Mapping[str, Any]) -> Row:
        """Return a record's position in the source and its event time, as columns of the ledger."""
        names = ("source_epoch", "source_partition", "source_offset")
        place = {name: record[own] for name, own in zip(names, PLACE, strict=True)}
        return place | {"event_time": instant(record[self.pipeline.log.event_time])}

    def _ledger_row(self, kind: str, key: Key, window: Window, **values: Any) -> Row:
        return self._of_epoch(kind) | self._place(key, window) | values

    def _of_epoch(self, kind: str) -> Row:
        return {"kind": kind, "epoch": self.clock.epoch, "processing_time": self.clock.processing_time}

    def _place(self, key: Key, window: Window) -> Row:
        span = {"window_start": window.start, "window_end": window.end}
        return dict(zip(self.pipeline.key, key, strict=True)) | span
