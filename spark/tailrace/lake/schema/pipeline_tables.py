"""Declare the tables of a pipeline: its ledger, its table of current answers and its table of runs."""

from __future__ import annotations

from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import (
    MERGE_ON_READ,
    PROPERTIES,
    Column,
    Contract,
    DefinitionTables,
    runs_contract,
)
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.schema.time_spans import reach_of_windows, span_terms
from tailrace.model.base.time import duration
from tailrace.model.base.types import struct_type
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.triggers.trigger import slot_types
from tailrace.model.windows.windows import Sliding

_KIND = "partial (state after the epoch), pane (what came out), late, or rejected by a step"
_LEFT = "late, rejected"
_STAMPED = "; pane: when its answer happened"
_NULL = "the results that are null since they left their type, each with why"


def pipeline_tables(pipeline: Pipeline) -> DefinitionTables:
    """Declare the tables of a pipeline."""
    where = pipeline.where
    return DefinitionTables(
        ledger_contract(pipeline),
        keys=tuple(pipeline.key),
        values=tuple(pipeline.answer_columns),
        answers=answer_contract(pipeline),
        runs=runs_contract(pipeline),
        step=duration(where.every) if isinstance(where, Sliding) else where.longest or 0,
        signals=bool(pipeline.when.signals()),
        meta={"mode": pipeline.how.value, "key": list(pipeline.key), "results": list(pipeline.answer_columns)},
    )


def key_columns(pipeline: Pipeline) -> dict[str, str]:
    """Map the name of each key column to its type, in order."""
    return {name: pipeline.columns[name] for name in pipeline.key}


def part_types(pipeline: Pipeline) -> dict[str, str]:
    """Map the names of the columns that store the accumulator's parts to the columns' types."""
    return {own: type for name, part in pipeline.parts.items() for own, type in part.columns(name).items()}


def predecessor_types(pipeline: Pipeline) -> dict[str, str]:
    """Map the fields of a predecessor to their types.

    A predecessor is a window that fired and then merged into another window, and whose answer is not yet retracted.
    """
    return dict.fromkeys((*SPAN, "generation", "panes"), "bigint") | part_types(pipeline)


def predecessors_type(pipeline: Pipeline) -> str:
    """Return the type of the ledger's column with the predecessors of a window."""
    return f"array<{struct_type(predecessor_types(pipeline))}>"


def ledger_contract(pipeline: Pipeline) -> Contract:
    """Declare a pipeline's ledger, which has partials (states of windows), panes, late records and rejected records.

    Each epoch is one commit.
    """
    keys = {name: Column(type, "key") for name, type in key_columns(pipeline).items()}
    slots = {f"trigger_{name}": type for name, type in slot_types(pipeline.when).items()}
    parts, said = struct_type(part_types(pipeline)), pipeline.what
    columns = {
        "kind": Column("string", _KIND, required=True),
        **keys,
        "window_start": Column("timestamp", "the window's start, inclusive"),
        "window_end": Column("timestamp", "the window's end, exclusive"),
        "generation": Column("bigint", "the generation of the window (rule V2)"),
        "epoch": Column("bigint", "the epoch that wrote the row", required=True),
        "pane_index": Column("bigint", "pane: its place among the window's; partial: how many have fired"),
        "timing": Column("string", "pane: early, on_time, late or correction"),
        "retraction": Column("boolean", "pane: whether it takes the window's answer back"),
        "is_last": Column("boolean", "pane of a stream: whether no other of its window comes after it"),
        "watermark": Column("timestamp", "pane: the watermark it fired at; late: the one it was judged by"),
        "processing_time": Column("timestamp", "the epoch's processing time"),
        "writer": Column("string", "pane: stream or backfill"),
        **{name: Column(type, f"pane: {said.get(name, _NULL)}") for name, type in pipeline.answer_columns.items()},
        "fresh": Column("bigint", "partial: records in no pane yet"),
        "fresh_on_time": Column("bigint", "partial: those of them that came before the watermark passed the window"),
        "waiting_since": Column("timestamp", "partial: processing time of the first of them"),
        "settled": Column("boolean", "partial: whether a pane fired after the watermark passed"),
        "gone": Column("boolean", "partial: whether the window merged away"),
        "fired": Column(parts, "partial: accumulator of the records in panes"),
        "pending": Column(parts, "partial: accumulator of the records since; pane, discarding: its accumulator"),
        "event_time": Column("timestamp", f"{_LEFT}: the record's event time{_STAMPED if pipeline.stamp else ''}"),
        "behind": Column("bigint", "late: how far the watermark was past the window's end, in microseconds"),
        "reason": Column("string", "late: expired or finished; rejected: what was wrong; pane of a backfill: open"),
        "source_epoch": Column("bigint", f"{_LEFT}: the record's _epoch in the log"),
        "source_partition": Column("string", f"{_LEFT}: the record's _source in the log"),
        "source_offset": Column("bigint", f"{_LEFT}: the record's _offset in the log"),
    }
    if slots:
        columns["trigger"] = Column(struct_type(slots), "partial: what the trigger remembers")
    if pipeline.how.value == "discarding":
        columns["answer"] = Column(struct_type(pipeline.answer_columns), "pane: the answer of everything so far")
    if pipeline.where.merges:
        merged = "partial: windows merged into this one that are to be taken back"
        columns["predecessors"] = Column(predecessors_type(pipeline), merged)
    doc = f"what pipeline {pipeline.name} consumed and produced, one commit an epoch"
    spans = span_terms("window_end", reach_of_windows(pipeline.where))
    return Contract(ledger_name(pipeline.name), doc, columns, ("kind", *spans), sort_by=(*keys, "window_end"))


def answer_contract(pipeline: Pipeline) -> Contract:
    """Declare the table of a pipeline's answers; a row is the latest answer for one key and window."""
    said = pipeline.what
    columns = {
        **{name: Column(type, "key") for name, type in key_columns(pipeline).items()},
        "window_start": Column("timestamp", "the window's start, inclusive", required=True),
        "window_end": Column("timestamp", "the window's end, exclusive", required=True),
        **{name: Column(type, f"{said.get(name, _NULL)}") for name, type in pipeline.answer_columns.items()},
        "timing": Column("string", "of the pane that gave it: early, on_time, late or correction"),
        "generation": Column("bigint", "version: generation", required=True),
        "epoch": Column("bigint", "version: epoch", required=True),
        "pane_index": Column("bigint", "version: pane index", required=True),
    }
    doc = f"the current answer of pipeline {pipeline.name}"
    retention = "every answer until it is taken back; one that another took the place of is in the ledger"
    spans = span_terms("window_end", reach_of_windows(pipeline.where))
    # The follower that updates the table of answers rewrites every file that has a changed window. If the windows in a
    # file end at similar times, few files have a changed window.
    order = ("window_end", *key_columns(pipeline))
    return Contract(
        pipeline.name,
        doc,
        columns,
        spans,
        PROPERTIES | MERGE_ON_READ,
        key=(*key_columns(pipeline), *SPAN),
        sort_by=order,
        retention=retention,
    )
