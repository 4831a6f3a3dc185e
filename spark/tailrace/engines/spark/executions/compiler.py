"""Choose the execution that a definition takes on Spark. Whatever can run natively does."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.engines.spark.executions.execution import SparkExecution
from tailrace.engines.spark.executions.native import Assigned, Native
from tailrace.engines.spark.executions.per_key import PerKey
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.ways import Way, way


def compiled(spark: SparkSession, pipeline: Pipeline, rest: RestingWindows | None = None) -> SparkExecution:
    """Compile a definition into the execution that it takes; with `rest` its windows may rest in files."""
    return _EXECUTIONS[way(pipeline)](spark, pipeline, rest)


_EXECUTIONS: dict[Way, type[SparkExecution]] = {Way.SQL: Native, Way.ASSIGNED: Assigned, Way.PYTHON: PerKey}
