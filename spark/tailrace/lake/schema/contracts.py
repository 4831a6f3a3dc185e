"""Declare the tables of a log and of a pipeline, column by column.

A contract is data: the columns with their shapes and docs, the partitioning, the properties. The tables are made from
it, the native execution writes by it, and the files in `iceberg_schemas/` are printed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.table_names import ledger_name, rejected_name, runs_name
from tailrace.lake.schema.time_spans import reach_of_log, reach_of_windows, spanned
from tailrace.model.base.types import element_type, struct_fields
from tailrace.model.definition.chain import Definition, Ranged, Windowless
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME, PLACE, SIGN, Log
from tailrace.model.triggers.combinators import slot_types

Shape: TypeAlias = "str | Mapping[str, Shape] | list[Shape]"
"""A column's type: a Spark SQL type name, a mapping for a struct, a list of one for an array."""

PARTIAL, PANE, LATE, REJECTED = "partial", "pane", "late", "rejected"
"""The kinds of rows in a ledger, each a partition of its own."""

OPEN = "open"
"""The reason in a backfill's row of a pane whose window the stream could reach: later stages read the row."""

PRODUCTION = "production"
"""The kind of row that the ledger of a computation or a map has in place of panes."""

FEEDBACK = "feedback"
"""The kind of row that a computation fed back to itself: in flight between the epoch that wrote it and the next."""

CLAIMED = "claimed"
"""The kind of row that a computation would have produced if another had not claimed it (`model.definition.once`)."""

PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.max-snapshot-age-ms": str(30 * 24 * 3600 * 1000),
}

KEPT = "every row, for good"
"""The retention of a table's rows, in words, where nobody says otherwise. Nothing here deletes rows."""

MERGE_ON_READ = {f"write.{command}.mode": "merge-on-read" for command in ("merge", "update", "delete")}


@dataclass(frozen=True)
class Column:
    """A column: its shape, what it means (units included), and whether every row has it; `was` are former names."""

    shape: Shape
    doc: str
    required: bool = False
    was: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contract:
    """A table: its name in the namespace, its columns in order, and its layout.

    `key` are the columns whose values no two rows share. `partition_by` and `sort_by` name columns, transforms of them
    such as `day(at)` or `bucket(16, who)`, and for the order `desc`. `owner` is who answers for the table, and
    `retention` says in words how long its rows stay.
    """

    table: str
    doc: str
    columns: Mapping[str, Column]
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(PROPERTIES))
    format_version: int = 2
    key: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    owner: str = "unnamed"
    retention: str = KEPT


def log_contract(log: Log) -> Contract:
    """Declare the table of a log: every record once, as declared, with where it came from."""
    declared = {name: Column(type, f"as declared by log {log.name}") for name, type in log.columns.items()}
    key: tuple[str, ...] = PLACE
    if log.signed:
        declared[SIGN] = Column("int", "1 for a row that is there from then on, -1 for one that is there no more")
        key = (*PLACE, SIGN)
    # Pages of version 2 hold numbers as differences, which makes files smaller by a quarter, and quicker to write.
    # Spark cannot read truth values from them.
    pages = "v1" if any("boolean" in type for type in log.columns.values()) else "v2"
    properties = PROPERTIES | {"write.parquet.page-version": pages}
    doc = f"every record of log {log.name}, once"
    spans = spanned(log.event_time, reach_of_log(log))
    return Contract(log.name, doc, declared | _provenance(), spans, properties, key=key, sort_by=(log.event_time,))


def rejected_contract(log: Log) -> Contract:
    """Declare the table of the records that could not be read as the log declares them."""
    columns = {
        "raw": Column("binary", "the record's bytes as they came; a Parquet row as JSON"),
        "error": Column("string", "why it was rejected", required=True),
    }
    return Contract(
        rejected_name(log.name), f"records that log {log.name} rejected", columns | _provenance(), key=PLACE
    )


def _provenance() -> dict[str, Column]:
    return {
        "_epoch": Column("bigint", "the epoch that landed it", required=True),
        "_source": Column("string", "the source's partition: a file, or topic-partition"),
        "_offset": Column("bigint", "its place in the source's partition; with the epoch and partition it is unique"),
        "_arrival": Column("timestamp", "when it reached the log, or became known where the source says so"),
    }


_KIND = "partial (state after the epoch), pane (what came out), late, or rejected by a step"
_LEFT = "late, rejected"
_STAMPED = "; pane: when its answer happened"
_NULL = "the results that are null since they left their type, each with why"


def key_columns(pipeline: Pipeline) -> dict[str, str]:
    """Return the key columns' types, in order."""
    return {name: pipeline.columns[name] for name in pipeline.key}


def part_types(pipeline: Pipeline) -> dict[str, Shape]:
    """Return the shapes of the accumulator's parts, by column name."""
    return {own: shape_of(type) for name, part in pipeline.parts.items() for own, type in part.columns(name).items()}


def shape_of(type: str) -> Shape:
    """Convert a column or accumulator type to its shape.

    >>> shape_of("array<bigint>"), shape_of("bigint")
    (['bigint'], 'bigint')
    >>> shape_of("array<struct<value:decimal(8,2),n:bigint>>")
    [{'value': 'decimal(8,2)', 'n': 'bigint'}]
    """
    if element := element_type(type):
        return [shape_of(element)]
    fields = struct_fields(type)
    return type if fields is None else {name: shape_of(own) for name, own in fields.items()}


def predecessor_shape(pipeline: Pipeline) -> dict[str, Shape]:
    """Return the shape of a window that merged away after it had fired, and whose answer is to be taken back."""
    span: dict[str, Shape] = {"window_start": "bigint", "window_end": "bigint", "generation": "bigint"}
    return span | {"panes": "bigint"} | part_types(pipeline)


def ledger_contract(pipeline: Pipeline) -> Contract:
    """Declare the ledger of a pipeline: partials, panes, late and rejected records, one commit an epoch."""
    keys = {name: Column(type, "key") for name, type in key_columns(pipeline).items()}
    slots = {f"trigger_{name}": type for name, type in slot_types(pipeline.when).items()}
    parts, said = part_types(pipeline), pipeline.what
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
        **{
            name: Column(shape_of(type), f"pane: {said.get(name, _NULL)}")
            for name, type in pipeline.answer_columns.items()
        },
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
        columns["trigger"] = Column(dict(slots), "partial: what the trigger remembers")
    if pipeline.how.value == "discarding":
        answer = {name: shape_of(type) for name, type in pipeline.answer_columns.items()}
        columns["answer"] = Column(answer, "pane: the answer of everything so far")
    if pipeline.where.merges:
        shape = predecessor_shape(pipeline)
        columns["predecessors"] = Column([shape], "partial: windows merged into this one that are to be taken back")
    doc = f"what pipeline {pipeline.name} consumed and produced, one commit an epoch"
    spans = spanned("window_end", reach_of_windows(pipeline.where))
    return Contract(ledger_name(pipeline.name), doc, columns, ("kind", *spans), sort_by=(*keys, "window_end"))


def answer_contract(pipeline: Pipeline) -> Contract:
    """Declare the answers of a pipeline: one row for each key and window, the latest version."""
    said = pipeline.what
    columns = {
        **{name: Column(type, "key") for name, type in key_columns(pipeline).items()},
        "window_start": Column("timestamp", "the window's start, inclusive", required=True),
        "window_end": Column("timestamp", "the window's end, exclusive", required=True),
        **{name: Column(shape_of(type), f"{said.get(name, _NULL)}") for name, type in pipeline.answer_columns.items()},
        "timing": Column("string", "of the pane that gave it: early, on_time, late or correction"),
        "generation": Column("bigint", "version: generation", required=True),
        "epoch": Column("bigint", "version: epoch", required=True),
        "pane_index": Column("bigint", "version: pane index", required=True),
    }
    doc = f"the current answer of pipeline {pipeline.name}"
    retention = "every answer until it is taken back; one that another took the place of is in the ledger"
    spans = spanned("window_end", reach_of_windows(pipeline.where))
    # Who follows the ledger rewrites the files of windows that changed: few, where a file holds windows of few ends.
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


def runs_contract(pipeline: Ranged) -> Contract:
    """Declare the table of runs and their ranges of event time. Append only: a run's latest row says how it stands."""
    columns = {
        "run": Column("string", "the run's id", required=True),
        "kind": Column("string", "stream, backfill, apply, rollback or restore", required=True),
        "status": Column("string", "started, committed, gave_way, failed or taken_back", required=True),
        "generation": Column("bigint", "the generation it writes in", required=True),
        "range_start": Column("timestamp", "first instant of the range of window timestamps"),
        "range_end": Column("timestamp", "the instant after the range"),
        "fingerprint": Column("string", "the definition's fingerprint", required=True),
        "log_epoch": Column("bigint", "the epoch that it pinned the log at"),
        "at": Column("timestamp", "when the row was written", required=True),
        "changed": Column("bigint", "windows fired again with another answer, or for the first time"),
        "untouched": Column("bigint", "windows that came out equal"),
        "retracted": Column("bigint", "windows taken back"),
        "reason": Column("string", "why it was run, or why it gave way"),
        "engine": Column("string", "the engine that computed it, and why; none of a stream, whose epochs say it"),
        "inputs": Column("string", "JSON: of each definition that it reads, the last generation seen, then those not"),
    }
    kind = type(pipeline).__name__.lower() if isinstance(pipeline, Windowless) else "pipeline"
    return Contract(runs_name(pipeline.name), f"runs of {kind} {pipeline.name}", columns)


def map_contract(definition: Map) -> Contract:
    """Declare the ledger of a map: the rows made of each record, and records a step rejected, one commit an epoch."""
    columns = {
        "kind": Column("string", "production (what came out), or rejected by a step", required=True),
        **{name: Column(type, "production") for name, type in definition.results.items()},
        PANE_TIME: Column("timestamp", "the record's event time", required=True),
        "generation": Column("bigint", "production: the generation that it is of (rule V2)"),
        "epoch": Column("bigint", "the epoch that wrote the row", required=True),
        "retraction": Column("boolean", "production: whether it takes back what the record had given"),
        "processing_time": Column("timestamp", "the epoch's processing time"),
        "writer": Column("string", "production: stream or backfill"),
        "reason": Column("string", "rejected: what was wrong"),
        "source_epoch": Column("bigint", "the record's _epoch in the log"),
        "source_partition": Column("string", "the record's _source in the log"),
        "source_offset": Column("bigint", "the record's _offset in the log"),
    }
    doc = f"what map {definition.name} made of the records of log {definition.log.name}, one commit an epoch"
    spans = spanned(PANE_TIME, reach_of_log(definition.log))
    return Contract(ledger_name(definition.name), doc, columns, ("kind", *spans), sort_by=(PANE_TIME,))


def join_contract(join: Join) -> Contract:
    """Declare the ledger of a join: the pairs, and records that came too late or were rejected, one commit an epoch.

    What a join keeps is not in it: the records are in the logs, from where a restart takes them.
    """
    place = {part: f"the {{0}} record's _{name} in its log" for part, name in (
        ("epoch", "epoch"), ("partition", "source"), ("offset", "offset"))}  # fmt: skip
    types = {"epoch": "bigint", "partition": "string", "offset": "bigint"}
    columns = {
        "kind": Column("string", "production (a pair, or a record without one), late, or rejected", required=True),
        **{name: Column(type, "production") for name, type in join.results.items()},
        PANE_TIME: Column("timestamp", f"production: the later record's time; {_LEFT}: the record's", required=True),
        "generation": Column("bigint", "production: the generation that it is of (rule V2)"),
        "epoch": Column("bigint", "the epoch that wrote the row", required=True),
        "retraction": Column("boolean", "production: whether it takes back what was given"),
        "processing_time": Column("timestamp", "the epoch's processing time"),
        "writer": Column("string", "production: stream or backfill"),
        "side": Column("string", f"{_LEFT}: which side's record it is"),
        "watermark": Column("timestamp", "late: the watermark that it was judged by"),
        "behind": Column("bigint", "late: how far the watermark was past the record, in microseconds"),
        **{
            f"{side}_{part}": Column(types[part], doc.format(side))
            for side in ("left", "right")
            for part, doc in place.items()
        },
        "reason": Column("string", "rejected: what was wrong"),
    }
    doc = f"what join {join.name} gave of logs {join.left.name} and {join.right.name}, one commit an epoch"
    spans = spanned(PANE_TIME, reach_of_log(join.log))
    return Contract(ledger_name(join.name), doc, columns, ("kind", *spans), sort_by=(PANE_TIME,))


def ledger_of(definition: Definition) -> Contract:
    """Declare the ledger of any definition."""
    if isinstance(definition, Join):
        return join_contract(definition)
    if isinstance(definition, Map):
        return map_contract(definition)
    return ledger_contract(definition) if isinstance(definition, Pipeline) else computation_contract(definition)


def computation_contract(computation: Computation) -> Contract:
    """Declare the ledger of a computation: keys' states, productions and left out records, one commit an epoch."""
    keys = {name: Column(computation.log.columns[name], "key") for name in computation.key}
    came = "production" if computation.once is None else "production, claimed"
    made = {name: Column(type, came) for name, type in type(computation).produces.items()}
    fed_back = ", feedback" if computation.loops else ""
    place = f"the record's {{0}} in the log; {came}{fed_back}: {{1}}"
    columns = {
        "kind": Column("string", _computed(computation), required=True),
        **keys,
        "epoch": Column("bigint", "the epoch that wrote the row", required=True),
        "processing_time": Column("timestamp", "the epoch's processing time"),
        **made,
        PANE_TIME: Column("timestamp", f"{came}{fed_back}: when it happened; late, rejected: the record's event time"),
        "timers": Column([_timer()], "partial: the pending timers, in the order in which they are due"),
        "gone": Column("boolean", "partial: whether the key has nothing any more"),
        "taken": Column("bigint", "partial: records that the key took in the epoch"),
        "timers_set": Column("bigint", "partial: timers that were set in the epoch"),
        "timers_fired": Column("bigint", "partial: timers that fired in the epoch"),
        "timers_dropped": Column("bigint", "partial: timers that were deleted or set anew in the epoch"),
        "watermark": Column("timestamp", "late: the watermark that it was judged by"),
        "behind": Column("bigint", "late: how far the watermark was past the record, in microseconds"),
        "reason": Column("string", "rejected: what was wrong"),
        "source_epoch": Column("bigint", place.format("_epoch", "its epoch")),
        "source_partition": Column("string", place.format("_source", "the key that it is of, as text")),
        "source_offset": Column("bigint", place.format("_offset", "its place among the key's of the epoch")),
    }
    if computation.fields:
        fields = {name: shape_of(one.type) for name, one in computation.fields.items()}
        columns["state"] = Column(fields, "partial: the fields of the key's state")
    if computation.loops:
        columns["returned"] = Column("bigint", "partial: records that came round the loop; rejected: 1 for one of them")
        if round_ := {name: shape_of(type) for name, type in type(computation).feedback.items()}:
            columns["feedback"] = Column(round_, "feedback: what the key is to take in the next epoch")
    if computation.ordered:
        record: dict[str, Shape] = {
            **computation.log.columns,
            "_epoch": "bigint",
            "_source": "string",
            "_offset": "bigint",
        }
        columns["waiting"] = Column([record], "partial: records that the watermark has not passed yet, in order")
    doc = f"what computation {computation.name} keeps and produced, one commit an epoch"
    spans = spanned(PANE_TIME, reach_of_log(computation.log))
    return Contract(ledger_name(computation.name), doc, columns, ("kind", *spans), sort_by=(*keys, PANE_TIME))


def _computed(computation: Computation) -> str:
    loop = "feedback (in flight to its key), " if computation.loops else ""
    loop += "claimed (what would have come out, but was another's), " if computation.once is not None else ""
    return f"partial (a key after the epoch), production (what came out), {loop}late, or rejected by the computation"


def _timer() -> dict[str, Shape]:
    return {"name": "string", "domain": "string", "at": "timestamp", "holds": "timestamp"}


def spark_type(shape: Shape) -> str:
    """Write a shape as a Spark SQL type.

    >>> spark_type([{"at": "timestamp", "n": "bigint"}])
    'array<struct<at:timestamp,n:bigint>>'
    """
    if isinstance(shape, str):
        return shape
    if isinstance(shape, list):
        return f"array<{spark_type(shape[0])}>"
    return f"struct<{','.join(f'{name}:{spark_type(inner)}' for name, inner in shape.items())}>"
