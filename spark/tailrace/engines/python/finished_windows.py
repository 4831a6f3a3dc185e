"""Use combiners that are written in Python to compute answers, and to correct the states of windows.

The answers are computed for input that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tailrace.engines.python.record_calls import OverBatches, over_records
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.errors import RecordError
from tailrace.model.base.time import instant
from tailrace.model.combiners.balanced_merge import Merging
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE
from tailrace.model.step.correction import Correction
from tailrace.model.step.step import lifter
from tailrace.model.step.transition import Row, Transition
from tailrace.model.windows.panes import Key
from tailrace.model.windows.windows import Window
from tailrace.sql.records.selections import FAILED
from tailrace.sql.results.backfill_rows import BackfillVersion


def window_calls(pipeline: Pipeline, schema: pa.Schema) -> OverBatches:
    """Return a function that yields one row for each pair of a record and one of the record's windows.

    A struct column of the row contains the record.
    """
    at, windows_of = pipeline.log.event_time, pipeline.windows_of

    def placed(record: dict[str, Any]) -> Iterator[Row]:
        try:
            windows = windows_of(instant(record[at]), record)
            pipeline.lifts(record)
        except RecordError:
            return
        own = {name: record[name] for name in (*pipeline.key, *PLACE)}
        for window in windows:
            yield own | {"window_start": window.start, "window_end": window.end, "record": record}

    return over_records(placed, schema)


def rejecting_calls(pipeline: Pipeline, schema: pa.Schema) -> OverBatches:
    """Return a function that yields one row for each record that the definition's own code rejects.

    The row contains the reason for the rejection. The function's input is the records after the definition's steps.
    """
    at, windows_of = pipeline.log.event_time, pipeline.windows_of

    def rejected(record: dict[str, Any]) -> list[Row]:
        try:
            windows_of(instant(record[at]), record)
            pipeline.lifts(record)
        except RecordError as error:
            return [{**record, FAILED: str(error)}]
        return []

    return over_records(rejected, schema)


def answer_calls(pipeline: Pipeline, schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """Return a function that computes answers from the rows of `window_calls`.

    If the function's input contains a row of a key, the input must contain all rows of this key.
    """
    rules, lifted = Transition(pipeline, Scalars()), lifter(pipeline)

    def merged(a: Row, b: Row) -> Row:
        return rules.merged(a, b) | {"_arrived": a["_arrived"] + b["_arrived"]}

    def answer(rows: pa.Table) -> pa.Table:
        windows: dict[Key, dict[Window, Merging[Row]]] = {}
        for row in rows.to_pylist():
            own = windows.setdefault(tuple(row[name] for name in pipeline.key), {})
            window = Window(row["window_start"], row["window_end"])
            own.setdefault(window, Merging()).add(lifted(row["record"]) | {"_arrived": 1}, merged)
        totals = {key: {window: one.total(merged) for window, one in own.items()} for key, own in windows.items()}
        found = [row for key, own in totals.items() for row in spanned(key, own)]
        return pa.Table.from_pylist(found, schema=schema)

    def results(parts: Row) -> Row:
        return rules.results({name: parts[name] for name in pipeline.parts})

    def spanned(key: Key, own: dict[Window, Row]) -> Iterator[Row]:
        spans = pipeline.where.gathered(own) if pipeline.where.merges else {window: [window] for window in own}
        for span, members in spans.items():
            parts = own[members[0]]
            for member in members[1:]:
                parts = merged(parts, own[member])
            named = dict(zip(pipeline.key, key, strict=True))
            yield named | {"window_start": span.start, "window_end": span.end} | results(parts) | rules.levelled(parts)

    return answer


def correction_calls(rules: Transition, written: BackfillVersion, schema: pa.Schema) -> OverBatches:
    """Return a function that computes the corrected states of windows for a backfill.

    Each input row contains a window's accumulator as computed by the backfill, and the window's state from the ledger.
    """
    correction = Correction(rules)
    now = {"watermark": written.watermark, "now": written.processing_time, "new_generation": written.generation}

    def started(row: Mapping[str, Any]) -> Row:
        made: Row = {**row, "told": False, "alike": False}
        held = correction.compared({name: row[f"s_{name}"] for name in rules.columns()}) if row["open"] else None
        if not row["computed"]:
            return made | {"alike": rules.later and held == correction.nothing}
        for step in correction.steps:
            made = made | step(made | now)
        return made | {"alike": held is not None and all(held[name] == row[name] for name in held)}

    return over_records(lambda row: [started(row)], schema)
