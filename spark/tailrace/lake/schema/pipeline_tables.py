"""Declare the tables of a pipeline: its ledger, its table of current answers and its table of runs."""

from __future__ import annotations

from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import (
    MERGE_ON_READ,
    PROPERTIES,
    Column,
    Contract,
    DefinitionTables,
    declared_columns,
    runs_contract,
)
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.schema.time_spans import reach_of_windows, span_terms
from tailrace.model.base.time import duration
from tailrace.model.base.types import struct_type
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.triggers.trigger import slot_types
from tailrace.model.windows.panes import Accumulation
from tailrace.model.windows.windows import Sliding

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
    slots = {f"trigger_{name}": type for name, type in slot_types(pipeline.when).items()}
    parts, results = struct_type(part_types(pipeline)), pipeline.answer_columns
    columns = declared_columns(
        "pipeline",
        {"stamped": "; pane: when its answer happened" if pipeline.stamp else ""},
        keys=_key_columns(pipeline),
        results=_result_columns(pipeline, "pane: "),
        fired=parts,
        pending=parts,
        trigger=struct_type(slots) if slots else None,
        answer=struct_type(results) if pipeline.how is Accumulation.DISCARDING else None,
        predecessors=predecessors_type(pipeline) if pipeline.where.merges else None,
    )
    doc = f"what pipeline {pipeline.name} consumed and produced, one commit an epoch"
    spans = span_terms("window_end", reach_of_windows(pipeline.where))
    return Contract(ledger_name(pipeline.name), doc, columns, ("kind", *spans), sort_by=(*pipeline.key, "window_end"))


def answer_contract(pipeline: Pipeline) -> Contract:
    """Declare the table of a pipeline's answers; a row is the latest answer for one key and window."""
    columns = declared_columns("answers", keys=_key_columns(pipeline), results=_result_columns(pipeline))
    doc = f"the current answer of pipeline {pipeline.name}"
    retention = "every answer until it is taken back; one that another took the place of is in the ledger"
    spans = span_terms("window_end", reach_of_windows(pipeline.where))
    # The follower that updates the table of answers rewrites every file that has a changed window. If the windows in a
    # file end at similar times, few files have a changed window.
    properties, order = PROPERTIES | MERGE_ON_READ, ("window_end", *pipeline.key)
    key = (*pipeline.key, *SPAN)
    return Contract(pipeline.name, doc, columns, spans, properties, key=key, sort_by=order, retention=retention)


def _key_columns(pipeline: Pipeline) -> dict[str, Column]:
    return {name: Column(type, "key") for name, type in key_columns(pipeline).items()}


def _result_columns(pipeline: Pipeline, before: str = "") -> dict[str, Column]:
    """Declare the columns with the pipeline's results; each description begins with the text `before`."""
    said = pipeline.what
    return {name: Column(type, f"{before}{said.get(name, _NULL)}") for name, type in pipeline.answer_columns.items()}
