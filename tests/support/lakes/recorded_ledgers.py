"""Ledgers as a stream leaves them, of made-up epochs: the records in the log, and each epoch folded and published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.follower_pace import Pace
from tailrace.fold.ledger_fold import FoldSetup
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.epoch_properties import clock_properties
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.step import Record
from tests.support.engines.spark_runs import arrow_bundle

Epochs = Sequence[tuple[Sequence[Record], Clock]]


def no_spark() -> NoReturn:
    """What a test that starts no JVM has in the place of Spark."""
    raise AssertionError("this was to be done in the process")


def record(
    lake: Lake, pipeline: Pipeline, epochs: Epochs, spark: SparkSession | None = None, *, restarts: Iterable[int] = ()
) -> None:
    """Fold epochs into a ledger, anew from its tables before some of them; without a session of Spark in the process.

    They are numbered on from those that the log has.
    """
    log = log_contract(pipeline.log)
    first = lake.head(log.table).number("epoch") + 1 if lake.has(log.table) else 0
    for contract in (log, rejected_contract(pipeline.log)):
        lake.ensure(contract)
    fold = None
    for place, (records, clock) in enumerate(epochs, first):
        bundle = arrow_bundle(pipeline.log, records, place)
        clock = replace(clock, epoch=place)
        land(lake, log.table, bundle, clock)
        if fold is None or place - first in set(restarts):
            if fold is not None:
                fold.close()
            engines, pace = StreamEngines(spark or no_spark, lake), Pace.of(1000, timedelta(0))
            fold = PipelineFold(pipeline, FoldSetup(lake, engines, pace, answered=(pipeline.name,)))
        given = bundle if spark is None else spark.createDataFrame(bundle)
        fold.stage(PassedEpoch.of(given, clock), Phases())
        fold.publish()
    if fold is not None:
        fold.close()


def land(lake: Lake, log: str, rows: pa.Table, clock: Clock) -> None:
    """Append an epoch's records to a log, with what its commit says of the clock."""
    said = clock_properties(replace(clock, signals=()))
    lake.change(log, FileChange(tuple(lake.write_files(log, rows))), said, lake.head(log).snapshot)
