"""Determine how a changed definition affects its tables, and estimate how long the change takes. Nothing is changed.

All facts are read from the catalog, the tables' manifests and the table of runs, without a JVM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.table import Table
from pyiceberg.types import LongType, TimestamptzType

from tailrace.lake.catalog.lake import Lake, head_of, lineage, properties_of
from tailrace.lake.catalog.stored_meaning import MEANING, former_definition, holds, stored_meaning, why_answers_differ
from tailrace.lake.change.generations import former_generations, generation_of, refusal_reason
from tailrace.lake.commit.epoch_properties import began_text
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.table_sizes import TableSize
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.contracts import PLACES, log_contract
from tailrace.lake.schema.table_names import LEDGER, ledger_name, rejected_name
from tailrace.model.base.types import column_of
from tailrace.model.definition.chain import chain
from tailrace.model.definition.fingerprint import Change, change, decode_meaning, differing_parts, encode_meaning
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.windows.windows import Window

RATE = 1_000_000
"""The assumed number of records per second if the definition has no earlier run. This number is the rate of a backfill
of a million records in a warm session on 2 cores (docs/performance.md, B1).
"""

START = 15.0
"""The time, in seconds, that building a new generation of the tables takes in addition to folding the records: the
start of Spark, and the commits that make the new generation current between two epochs.
"""


@dataclass(frozen=True)
class LogSize:
    """The total size of a definition's logs: records, bytes, rejected records, and the range of epochs.

    `epochs` has the first and last epoch with a record in the logs; earlier epochs were trimmed or had no record.
    `events` has the first and last event time in the logs. `began` maps the logs that did not begin with the first
    messages of their topics to where they began.
    """

    records: int
    bytes: int
    rejected: int
    epochs: tuple[int, int] | None
    events: Window | None
    began: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """The estimated time, in seconds, to build a new generation of the tables from the logs, at `rate` records per
    second.

    `measured` is the run in which this rate was measured. `measured` is None if `rate` is the assumed `RATE`.
    """

    seconds: float
    rate: float
    measured: str | None


@dataclass(frozen=True)
class ChangePlan:
    """The differences between a definition and its tables.

    `parts` maps each part of the definition that differs to a pair of values: the value in the tables, and the new
    value. `generation` is the current generation of the tables, or None if there are no tables. `before` lists the
    earlier generations that are kept. `log` is the total size of the definition's logs, or None if one of these logs
    does not exist. `refused` is the reason for which the definition cannot be applied; it is None if the definition can
    be applied. `readers` names the definitions that read the panes of this definition. `unused` lists the columns of
    the definition's log that the definition does not use: they may be added or changed without a new generation.
    If nothing differs but the used columns of a log, `wider` maps each column that got a wider type to a pair of types,
    and `renamed` maps each column that was renamed to its former name. Then `differ` is the reason why the answers
    would not stay as they are, or None if the definition goes on in its generation. `placed` maps each used column of a
    log that is taken from another place in the records from now on to the former and the new place.
    """

    change: Change
    parts: Mapping[str, tuple[Any, Any]]
    generation: int | None
    before: tuple[int, ...]
    log: LogSize | None
    estimate: Estimate | None
    refused: str | None
    readers: tuple[str, ...]
    unused: tuple[str, ...] = ()
    wider: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    placed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    differ: str | None = None


def plan_change(lake: Lake, pipeline: Pipeline) -> ChangePlan:
    """Compare a definition with its tables in a lake. Raises `LakeError` if the lake cannot be opened."""
    name = ledger_name(pipeline.name)
    log = measure_logs(lake, pipeline.sources) if all(lake.has(log.name) for log in pipeline.sources) else None
    if not lake.has(name):
        return ChangePlan(Change.NOTHING, {}, None, (), log, None, None, ())
    ledger = lake.table(name)
    was, means = stored_meaning(ledger), decode_meaning(encode_meaning(pipeline.meaning))
    same = holds(lake, pipeline)
    kind = Change.NOTHING if same else change(was, means)
    if kind is Change.NOTHING and not same:
        # No part of the definition differs. Only the fingerprints differ, because an older version of Tailrace wrote
        # the tables.
        kind = Change.UNKNOWN
    parts = differing_parts(was, means) if was is not None and not same else {}
    former = former_definition(lake, pipeline)
    return ChangePlan(
        kind,
        parts,
        generation_of(ledger),
        tuple(former_generations(ledger)),
        log,
        None if same or log is None else estimate(lake, pipeline, log),
        None if same else refusal_reason(lake, pipeline),
        tuple(readers(lake, pipeline)),
        tuple(unused_columns(lake, pipeline)),
        *former_columns(former, pipeline),
        placed_columns(lake, pipeline),
        None if former is None else why_answers_differ(former, pipeline),
    )


def former_columns(former: Pipeline | None, pipeline: Pipeline) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return the columns of logs that have wider types, with both types, and those that have other names than before.

    The columns are those that the pipeline, or a definition that it reads, uses.
    """
    wider: dict[str, tuple[str, str]] = {}
    renamed: dict[str, str] = {}
    for before, now in zip(chain(former), chain(pipeline), strict=True) if former is not None else ():
        for log, own in zip(before.log.parts, now.log.parts, strict=True):
            if own.landed:
                used = now.used | {own.event_time}
                # The copy of before has the columns in the same order.
                for (name, type), (was, narrow) in zip(own.columns.items(), log.columns.items(), strict=True):
                    if name in used:
                        wider |= {name: (narrow, type)} if narrow != type else {}
                        renamed |= {name: was} if was != name else {}
    return wider, renamed


def placed_columns(lake: Lake, pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """Map the columns, and fields in columns, that are at other places in the records of logs than so far to both
    places.

    The columns are those that the pipeline, or a definition that it reads, uses. Tables of logs that earlier versions
    made do not say where the columns were.
    """
    found: dict[str, tuple[str, str]] = {}
    for stage in chain(pipeline):
        for log in stage.log.parts:
            table = lake.find(log.name) if log.landed else None
            if table is not None and PLACES in table.properties:
                before: dict[str, str] = json.loads(table.properties[PLACES])
                for path in sorted({*before, *log.fields}):
                    was, now = (places.get(path, path.rpartition(".")[2]) for places in (before, log.fields))
                    if was != now and column_of(path) in {*stage.used, log.event_time}:
                        found[path] = (was, now)
    return found


def unused_columns(lake: Lake, pipeline: Pipeline) -> list[str]:
    """List the columns of a pipeline's log, as the log declares it and in the lake, that the pipeline does not use."""
    declared, table = list(pipeline.log.columns), lake.find(pipeline.log.name) if pipeline.log.landed else None
    own = log_contract(pipeline.log).columns
    there = [] if table is None else [field.name for field in table.schema().fields if field.name not in own]
    used = {*pipeline.used, pipeline.log.event_time}
    return [name for name in [*declared, *there] if name not in used]


def measure_logs(lake: Lake, logs: Sequence[Log]) -> LogSize:
    """Read the manifests of several logs, and return the total size of these logs."""
    tables = [lake.table(log.name) for log in logs]
    rejected = [table for log in logs if (table := lake.find(rejected_name(log.name))) is not None]
    sizes = [TableSize.of(table) for table in tables]
    epochs = [bound for table in tables for bound in _bounds(table, "_epoch")]
    events = [bound for log, table in zip(logs, tables, strict=True) for bound in _bounds(table, log.event_time)]
    return LogSize(
        sum(size.rows for size in sizes),
        sum(size.bytes for size in sizes),
        sum(TableSize.of(table).rows for table in rejected),
        (min(epochs), max(epochs)) if epochs else None,
        Window(min(events), max(events)) if events else None,
        {log.name: at for log, table in zip(logs, tables, strict=True) if (at := began_text(head_of(table)))},
    )


def estimate(lake: Lake, pipeline: Pipeline, log: LogSize) -> Estimate:
    """Estimate the time to fold all records of the logs.

    The estimate uses the rate of the definition's last committed `apply` run, or `RATE` if there is no such run.
    """
    rate, measured, runs = float(RATE), None, Runs(lake, pipeline)
    if lake.has(runs.table):
        each = [_totals(lake.table(log.name)) for log in pipeline.sources]
        totals = {epoch: sum(one.get(epoch, 0) for one in each) for epoch in set().union(*each)}
        began = dict[str, datetime]()
        for row in sorted(lake.table(runs.table).scan().to_arrow().to_pylist(), key=lambda row: row["at"]):
            took = (row["at"] - began.setdefault(row["run"], row["at"])).total_seconds()
            done = row["kind"] == "apply" and row["status"] == "committed" and took > 0
            if done and (folded := totals.get(row["log_epoch"], 0)) > 0:
                rate, measured = folded / took, row["run"]
    return Estimate(log.records / rate + START, rate, measured)


def _totals(log: Table) -> dict[int, int]:
    """Return a dict from each epoch whose snapshot is kept to the total number of records that the log had after the
    epoch.
    """
    totals: dict[int, int] = {}
    for snapshot in lineage(log, head_of(log).snapshot):
        epoch = properties_of(snapshot).get("epoch")
        if epoch is not None and snapshot.summary is not None:
            totals.setdefault(int(epoch), int(snapshot.summary.additional_properties.get("total-records", "0")))
    return totals


def _bounds(table: Table, column: str) -> list[int]:
    """List the lower and upper bounds of a column from the statistics of a table's data files.

    The list is empty if the table has no such column, or if no file has statistics for it.
    """
    live = match_names(table, [column], table.schema().column_names)[column]
    if live is None:
        return []
    field = table.schema().find_field(live)
    type = TimestamptzType() if isinstance(field.field_type, TimestamptzType) else LongType()
    return [
        int(from_bytes(type, bounds[field.field_id]))
        for task in table.scan().plan_files()
        for bounds in (task.file.lower_bounds, task.file.upper_bounds)
        if bounds and field.field_id in bounds
    ]


def readers(lake: Lake, pipeline: Pipeline) -> list[str]:
    """Return the names of the definitions that read a pipeline's panes.

    These definitions are found through the properties of all ledgers in the lake.
    """
    tables = [name for name in lake.tables if name.endswith(LEDGER)]
    meanings = {name.removesuffix(LEDGER): lake.table(name).properties.get(MEANING) for name in sorted(tables)}
    return [name for name, text in meanings.items() if text and decode_meaning(text).get("reads") == pipeline.name]
