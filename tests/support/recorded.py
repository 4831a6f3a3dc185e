"""Ledgers as a stream leaves them, of made-up epochs: the records in the log, and each epoch folded and published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import log_contract
from tailrace.model.clock import Clock
from tailrace.model.pipeline import Pipeline
from tailrace.model.step import Record
from tailrace.spark.execution import OpenWindows
from tailrace.spark.folding import Fold, Phases
from tailrace.spark.pacing import Pace
from tailrace.spark.sides import Sides
from tests.support.native import bundle_frame, in_micros


def record(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    epochs: Sequence[tuple[Sequence[Record], Clock]],
    *,
    restarts: Iterable[int] = (),
) -> list[list[Any]]:
    """Fold epochs into a ledger, anew from its tables before some of them; gives the open windows after each.

    The epochs are numbered from 0, as a stream does.
    """
    lake.ensure(log_contract(pipeline.log))
    bundles = [bundle_frame(spark, pipeline, records, place) for place, (records, _) in enumerate(epochs)]
    reduce(DataFrame.unionAll, bundles).writeTo(lake.spark_name(pipeline.log.name)).append()
    fold, after = Fold(lake, pipeline, Sides(spark, lake), pace=Pace.of(1000, timedelta(0))), []
    for place, (_, clock) in enumerate(epochs):
        if place in set(restarts):
            fold.close()
            fold = Fold(lake, pipeline, Sides(spark, lake), pace=Pace.of(1000, timedelta(0)))
        fold.stage(bundles[place], Clock(place, clock.watermark, clock.processing_time, clock.signals), Phases())
        fold.publish()
        after.append(windows_of(fold.state))
    fold.close()
    return after


def windows_of(state: OpenWindows) -> list[Any]:
    """The open windows, in an order that does not depend on where they were computed."""
    return ordered(in_micros(state.windows))


def ordered(frame: DataFrame) -> list[Any]:
    """The rows, in an order of their own."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)
