"""What a lake on Spark says of the definitions in `pipelines/`, and what plain SQL says of the logs that it landed."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.model.logs.log import Log
from tailrace.verify.audit import audit
from tests.support.cases.applications import RECORDS, Answers, Application


def by_hand(spark: SparkSession, application: Application, *, late: bool) -> Answers:
    """The answers out of the logs by plain SQL; those that came too late for the first definition only with `late`."""
    for view, log in application.views.items():
        left = "" if late else f"LEFT ANTI JOIN {_late(chain(application.pipeline)[0], log)}"
        records = spark.sql(f"SELECT *, {log.event_time} AS happened FROM {log.name} AS r {left}")
        records.createOrReplaceTempView(view)
    return _rows(spark, application, f"({application.by_hand})")


def _late(first: Definition, log: Log) -> str:
    """The ledger with the late rows of the first definition, and the condition that a record `r` of a log is in one."""
    place = "source"
    if isinstance(first, Join):
        (place,) = (side for side in SIDES if first.side(side).name == log.name)
    return (
        f"{first.name}__ledger AS l ON l.kind = 'late' AND l.{place}_epoch = r._epoch "
        f"AND l.{place}_partition = r._source AND l.{place}_offset = r._offset"
    )


def answered(spark: SparkSession, application: Application) -> Answers:
    """The current answers."""
    return _rows(spark, application, application.pipeline.name)


def _rows(spark: SparkSession, application: Application, table: str) -> Answers:
    before = f"UNIX_MICROS(window_start) < {RECORDS[application.records].last}"
    return application.by_place(spark.sql(f"SELECT {application.columns} FROM {table} WHERE {before}").collect())


def as_by_hand(spark: SparkSession, lake: Lake, application: Application, hint: str = "") -> Answers:
    """The stream's answers are those of plain SQL less what was late, and after a backfill those of all there is (L1).

    Every definition that it reads is sound (X6), too. Gives the answers.
    """
    pipeline, records = application.pipeline, RECORDS[application.records]
    told = f"{pipeline.name} {hint}"
    assert answered(spark, application) == by_hand(spark, application, late=False), told
    for one in chain(pipeline):
        assert isinstance(one, Ranged)
        sound(spark, lake, one, hint)
    # How much is too late depends on where the epochs were cut.
    for join in (one for one in chain(pipeline) if isinstance(one, Join)):
        backfill(lake, join, records.first, records.last)
    backfill(lake, pipeline, records.first, records.last)
    answers = answered(spark, application)
    assert answers, told
    assert answers == by_hand(spark, application, late=True), told
    sound(spark, lake, pipeline, hint)
    return answers


def sound(spark: SparkSession, lake: Lake, definition: Ranged, hint: str = "") -> None:
    """The audit finds nothing wrong with it."""
    found = audit(lake, definition)
    assert found.ok, f"{definition.name} {hint}: {[check for check in found.checks if not check.ok]}"
