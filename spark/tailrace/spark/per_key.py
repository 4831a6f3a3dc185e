"""The `python` execution: the reference step itself on the executors, for what nobody can compile.

State and bundle are brought together by a hash of the key, in buckets: Python is called once for a bucket, not for a
key or a record, with Arrow batches of both. Of many windows those that an epoch does nothing to rest
(`spark.resting`). What comes back holds the ledger's rows and the windows that stay open, in the same columns as the
native execution's, so that tables, restarts and backfills are the same for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tailrace.lake.contracts import LATE, PANE, PARTIAL
from tailrace.model.algebra import Scalars
from tailrace.model.clock import Clock
from tailrace.model.log import SIGN
from tailrace.model.panes import Key, Late, Pane
from tailrace.model.pipeline import Pipeline
from tailrace.model.step import Predecessor, State, step
from tailrace.model.time import instant
from tailrace.model.transition import Row, Transition
from tailrace.model.windows import Window
from tailrace.spark.execution import Consumed, Execution, OpenWindows, Stepped, checkpointed, schema_of
from tailrace.spark.preparing import queried
from tailrace.spark.resting import brought, told_apart, with_resting
from tailrace.sql.algebra import Sql, quoted
from tailrace.sql.clock import clock_row, times
from tailrace.sql.windows import kept

BUCKETS = 16
"""How many buckets the keys are hashed to: Python calls an epoch. A bucket's windows are in memory at once."""

FEW = 20_000
"""How many open windows go through the workers in less time than it takes to tell apart those that rest."""

BUCKET = "_bucket"
_PLACE = ("_epoch", "_source", "_offset")


class PerKey(Execution):
    """One definition, run by the reference step in the session's Python workers."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        super().__init__(spark, pipeline)
        state, said = self._state_schema(), schema_of(self.rows.types)
        self._schema = StructType([StructField("state", state), StructField("said", said)])
        rules = Transition(pipeline, Sql())
        row = {name: quoted(name) for name in rules.columns()}
        self._stirs = rules.stirs(row, "window_end", times(pipeline))

    def consume(self, bundle: DataFrame, state: OpenWindows) -> Consumed:
        """The bundle after the definition's steps; its records are looked at in the step."""
        prepared = self._prepared(bundle)
        columns = [*map(quoted, self.pipeline.columns), *_PLACE, f"{bucketed(self.pipeline)} AS {BUCKET}"]
        columns += [SIGN] if self.pipeline.earlier is not None else []
        items, where = ", ".join(columns), kept(self.pipeline)
        records = queried(self.spark, prepared.records, lambda view: f"SELECT {items} FROM {view}{where}")
        return Consumed(records, None, prepared)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch, a bucket at a time."""
        clock.after(state.clock)
        one = _Step(self.pipeline, clock, state.clock, state.generation, to_arrow_schema(self._schema))
        windows = state.windows.selectExpr("*", f"{bucketed(self.pipeline)} AS {BUCKET}")
        there, resting = tuple[DataFrame, ...](), None
        if state.count is None or state.count() >= FEW:
            there = (brought(consumed.partials, self.pipeline.key),)
            now = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
            windows, resting = told_apart(windows, *there, self.pipeline.key, now, self._stirs)
        both = windows.groupBy(BUCKET).cogroup(consumed.partials.groupBy(BUCKET))
        stepped = both.applyInArrow(lambda left, right: one(left, right), self._schema)
        if resting is not None:
            stepped = with_resting(self.spark, stepped, resting, self._schema)
        made, count = checkpointed(stepped, F.col("state").isNotNull())
        rows, after = (made.where(f"{part} IS NOT NULL").select(f"{part}.*") for part in ("said", "state"))
        held = (made, *there, *consumed.prepared.held)
        onward = OpenWindows(after, clock, state.generation, held, count)
        return Stepped(self._with_rejected(rows, consumed, clock), onward, count)


@dataclass(frozen=True)
class _Step:
    """What a Python worker does with one bucket: its open windows and its records, as Arrow tables."""

    pipeline: Pipeline
    clock: Clock
    before: Clock | None
    generation: int
    schema: pa.Schema

    def __call__(self, held: pa.Table, bundle: pa.Table) -> pa.Table:
        state = State(self._windows(held), self.before, self.generation)
        outcome = step(self.pipeline, state, bundle.to_pylist(), self.clock, prepared=True)
        rows = [{"state": row} for row in self._remaining(outcome.state)]
        rows += [{"said": row} for row in self._partials(state, outcome.state)]
        rows += [{"said": self._pane(pane)} for pane in outcome.panes]
        rows += [{"said": self._late(late)} for late in outcome.late]
        return pa.Table.from_pylist(rows, schema=self.schema)

    @cached_property
    def _rules(self) -> Transition:
        return Transition(self.pipeline, Scalars())

    def _windows(self, held: pa.Table) -> dict[Key, dict[Window, Row]]:
        columns, parts = list(self._rules.columns()), list(self.pipeline.parts)
        windows: dict[Key, dict[Window, Row]] = {}
        for one in held.to_pylist():
            row = {name: one[name] for name in columns}
            row["predecessors"] = tuple(
                Predecessor(
                    Window(old["window_start"], old["window_end"]),
                    old["generation"],
                    old["panes"],
                    {part: old[part] for part in parts},
                )
                for old in one.get("predecessors") or ()
            )
            key = tuple(one[name] for name in self.pipeline.key)
            windows.setdefault(key, {})[Window(one["window_start"], one["window_end"])] = row
        return windows

    def _remaining(self, state: State) -> Iterator[Row]:
        for key, windows in state.windows.items():
            for window, row in windows.items():
                yield self._place(key, window) | row | {"predecessors": self._predecessors(row)}

    def _partials(self, before: State, after: State) -> Iterator[Row]:
        """The partials of what changed and stays open, and of what merged away."""
        for key in {**before.windows, **after.windows}:
            old, new = before.windows.get(key, {}), after.windows.get(key, {})
            for window, row in new.items():
                if old.get(window) != row:
                    yield self._partial(key, window, row)
            for window, row in old.items():
                if window not in new and not self._rules.out_of_reach(window.end, self.clock.watermark):
                    yield self._said(PARTIAL, key, window, generation=row["generation"], gone=True)

    def _partial(self, key: Key, window: Window, row: Row) -> Row:
        said = self._said(PARTIAL, key, window, generation=row["generation"], pane_index=row["panes"], gone=False)
        said |= {name: row[name] for name in ("fresh", "fresh_on_time", "waiting_since", "settled")}
        for which in ("fired", "pending"):
            said[which] = {name: row[f"{which}_{name}"] for name in self.pipeline.parts}
        said["trigger"] = {f"trigger_{name}": row[f"trigger_{name}"] for name in self.pipeline.when.slots()}
        return said | {"predecessors": self._predecessors(row)}

    def _predecessors(self, row: Row) -> list[Row]:
        return [
            {
                "window_start": old.window.start,
                "window_end": old.window.end,
                "generation": old.generation,
                "panes": old.panes,
                **old.fired,
            }
            for old in row["predecessors"]
        ]

    def _pane(self, pane: Pane) -> Row:
        version = {"generation": pane.version.generation, "pane_index": pane.version.index}
        said = self._said(PANE, pane.key, pane.window, **version, timing=pane.timing.value, writer=pane.writer)
        said |= {"retraction": pane.retraction, "watermark": pane.watermark, **pane.values, "answer": pane.answer}
        said |= {"event_time": pane.timestamp}
        return said | ({"pending": pane.parts} if self._rules.discards and not pane.retraction else {})

    def _late(self, late: Late) -> Row:
        before = self.before.watermark if self.before else None
        said = self._said(LATE, late.key, late.window, watermark=before, behind=late.behind, reason=late.reason)
        said["event_time"] = instant(late.record[self.pipeline.log.event_time])
        names = ("source_epoch", "source_partition", "source_offset")
        return said | {name: late.record[place] for name, place in zip(names, _PLACE, strict=True)}

    def _said(self, kind: str, key: Key, window: Window, **values: Any) -> Row:
        own = {"kind": kind, "epoch": self.clock.epoch, "processing_time": self.clock.processing_time}
        return own | self._place(key, window) | values

    def _place(self, key: Key, window: Window) -> Row:
        span = {"window_start": window.start, "window_end": window.end}
        return dict(zip(self.pipeline.key, key, strict=True)) | span


def bucketed(pipeline: Pipeline) -> str:
    """The bucket of a row with the key's columns, as SQL."""
    return f"PMOD(HASH({', '.join(map(quoted, pipeline.key))}), {BUCKETS})" if pipeline.key else "0"
