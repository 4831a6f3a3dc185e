"""Which execution a definition takes on Spark, and why. Whatever can run natively does."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.engines.spark.executions.execution import Execution
from tailrace.engines.spark.executions.native import Native
from tailrace.engines.spark.executions.per_key import PerKey
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.reasons import reasons


def compiled(spark: SparkSession, pipeline: Pipeline) -> Execution:
    """The definition in the execution that it takes."""
    return PerKey(spark, pipeline) if reasons(pipeline) else Native(spark, pipeline)
