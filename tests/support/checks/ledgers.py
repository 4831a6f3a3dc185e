"""What a stream left in its ledgers, beside what the reference says of the same epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace import Computation, Pipeline
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.definition import Definition
from tailrace.model.step import computation_state
from tailrace.model.step.chain_fold import ChainRun, fold_chain
from tailrace.model.step.step import WindowsState
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tests.support.engines.spark_runs import comparable, in_micros, said_by_ledger, said_by_reference


def on(lake: Lake, engine: str) -> Lake:
    """Open a lake with a setting that names the engine."""
    return Lake(lake.settings.model_copy(update={"engine": engine}), lake.tell)


def run(spark: SparkSession, lake: Lake, folder: Path, *definitions: Definition) -> list[EpochReport]:
    reports: list[EpochReport] = []
    stream = Stream(spark, lake, definitions, Files(str(folder), "json", 1), watch=reports.append)
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()
    return reports


def expected(spark: SparkSession, lake: Lake, definition: Definition) -> list[ChainRun]:
    """What the reference says of the log's epochs, with the clocks that the log recorded."""
    log = definition.log.sources[0]
    columns = [*log.columns, "_epoch", "_source", "_offset"]
    instants = [name for name, type in log.columns.items() if type == "timestamp"]
    bundles: dict[int, list[dict[str, Any]]] = {}
    for row in in_micros(spark.sql(f"SELECT {', '.join(columns)} FROM {log.name}")).collect():
        record = row.asDict() | {name: moment(row[name]) for name in instants}
        bundles.setdefault(row["_epoch"], []).append(record)
    found = epoch_commits(lake, log.name)
    clocks = [replace(found[epoch].clock, signals=()) for epoch in sorted(found)]
    epochs = [(bundles.get(clock.epoch, []), clock) for clock in clocks]
    start = [ChainRun(WindowsState(generation=1))] if isinstance(definition, Pipeline) else []
    for earlier in definition.before:
        assert not isinstance(earlier, Pipeline)
        start = [ChainRun(computation_state.KeysState()), *start]
    return fold_chain(definition, epochs, start)


def kept(spark: SparkSession, computation: Computation) -> Counter[tuple[Any, ...]]:
    """What a computation's ledger has but the partials."""
    rows = spark.sql(f"SELECT * FROM {computation.name}__ledger WHERE kind <> 'partial'")
    columns = ("kind", *computation.key, "epoch", "event_time", *computation.produces, "behind", "source_offset")
    return Counter(tuple(comparable(row[column]) for column in columns) for row in in_micros(rows).collect())


def told(computation: Computation, run: ChainRun) -> Counter[tuple[Any, ...]]:
    """What the reference tells, as a ledger does."""
    found = Counter[tuple[Any, ...]]()
    for one in run.productions:
        values = map(comparable, one.values.values())
        found["production", *one.key, one.epoch, one.at, *values, None, one.place] += 1
    nothing = [None] * len(computation.produces)
    for late in run.late:
        at, place = instant(late.record[computation.log.event_time]), late.record["_offset"]
        found["late", *late.key, late.epoch, at, *nothing, late.behind, place] += 1
    return found


def as_ever(spark: SparkSession, lake: Lake, definitions: Iterable[Pipeline | Computation]) -> None:
    """The ledgers have what the reference says, epoch by epoch."""
    for one in definitions:
        runs = expected(spark, lake, one)
        if isinstance(one, Pipeline):
            last = runs[-1]
            assert said_by_ledger(spark, one) == said_by_reference(one, last.panes, ())
            assert not last.late
        elif one.productions == "strong":
            assert runs[-1].productions
            assert runs[-1].late
            assert kept(spark, one) == told(one, runs[-1])
        assert lake.head(f"{one.name}__ledger").number("epoch") == lake.head(one.log.sources[0].name).number("epoch")
