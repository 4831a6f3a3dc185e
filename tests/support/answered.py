"""What a lake on Spark says of the definitions in `pipelines/`, and what plain SQL says of the logs that it landed."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.backfill.pipeline_backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.pipeline import Pipeline
from tailrace.verify.pipeline_audit import audit
from tests.support.applications import RECORDS, Answers, Application


def by_hand(spark: SparkSession, application: Application, *, late: bool) -> Answers:
    """The answers out of the log by plain SQL; those that came too late for the first stage only with `late`."""
    pipeline = application.pipeline
    log, first = pipeline.sources[0], pipeline.stages[0].name
    left = (
        ""
        if late
        else f"""LEFT ANTI JOIN {first}__ledger AS l ON l.kind = 'late' AND l.source_epoch = r._epoch
        AND l.source_partition = r._source AND l.source_offset = r._offset"""
    )
    spark.sql(f"SELECT *, {log.event_time} AS happened FROM {log.name} AS r {left}").createOrReplaceTempView("records")
    return _rows(spark, application, f"({application.by_hand})")


def answered(spark: SparkSession, application: Application) -> Answers:
    """The current answers."""
    return _rows(spark, application, application.pipeline.name)


def _rows(spark: SparkSession, application: Application, table: str) -> Answers:
    before = f"UNIX_MICROS(window_start) < {RECORDS[application.records].last}"
    return application.by_place(spark.sql(f"SELECT {application.columns} FROM {table} WHERE {before}").collect())


def as_by_hand(spark: SparkSession, lake: Lake, application: Application, hint: str = "") -> Answers:
    """The stream's answers are those of plain SQL less what was late, and after a backfill those of all there is (L1).

    Every stage is sound (X6), too. Gives the answers.
    """
    pipeline, records = application.pipeline, RECORDS[application.records]
    told = f"{pipeline.name} {hint}"
    assert answered(spark, application) == by_hand(spark, application, late=False), told
    for stage in pipeline.stages:
        sound(spark, lake, stage, hint)
    # How much is too late depends on where the epochs were cut.
    backfill(lake, pipeline, records.first, records.last)
    answers = answered(spark, application)
    assert answers, told
    assert answers == by_hand(spark, application, late=True), told
    sound(spark, lake, pipeline, hint)
    return answers


def sound(spark: SparkSession, lake: Lake, pipeline: Pipeline, hint: str = "") -> None:
    """The audit finds nothing wrong with it."""
    found = audit(lake, pipeline)
    assert found.ok, f"{pipeline.name} {hint}: {[check for check in found.checks if not check.ok]}"
