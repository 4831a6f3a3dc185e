"""Compute the answers of finished input, and the states of windows that start anew, for combiners written in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

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


def assigner(pipeline: Pipeline, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    log, windows_of = pipeline.log, pipeline.windows_of

    def placed(record: dict[str, Any]) -> Iterator[Row]:
        try:
            windows = windows_of(instant(record[log.event_time]), record)
            pipeline.lifts(record)
        except RecordError:
            return
        for window in windows:
            yield {
                **{name: record[name] for name in (*pipeline.key, *PLACE)},
                "window_start": window.start,
                "window_end": window.end,
                "record": record,
            }

    def assign(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [row for record in batch.to_pylist() for row in placed(record)]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return assign


def refuser(pipeline: Pipeline, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that makes rows of `schema` of the records that code of one's own cannot take, with the reason.

    They are records after the steps.
    """
    at, windows_of = pipeline.log.event_time, pipeline.windows_of

    def why(record: dict[str, Any]) -> str | None:
        try:
            windows_of(instant(record[at]), record)
            pipeline.lifts(record)
        except RecordError as error:
            return str(error)
        return None

    def refuse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            refused = [
                {**record, FAILED: reason} for record in batch.to_pylist() if (reason := why(record)) is not None
            ]
            rows = [{name: record[name] for name in schema.names} for record in refused]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return refuse


def answerer(pipeline: Pipeline, schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
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


def starter(
    rules: Transition, written: BackfillVersion, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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

    def start(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist([started(row) for row in batch.to_pylist()], schema=schema)

    return start
