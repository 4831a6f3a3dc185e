"""A computation on Spark says and keeps what the reference does, and its ledger restores it (X2; MillWheel, 6.2)."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.spark.keys import KeysThere, SparkKeys
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.settings import Settings
from tests.support.cases.computations import Machine, machines
from tests.support.engines.key_tables import KeysAsTables, is_the_reference
from tests.support.engines.spark_runs import in_parts


class There(KeysAsTables):
    """A side on Spark. It needs no lake, for nothing is read from a table or written to one."""

    def __init__(self, spark: SparkSession, machine: Machine) -> None:
        self.side: SparkKeys = SparkKeys(spark, Lake(Settings()), machine, EngineChoice(Engine.SPARK, "a test"))

    def rows(self, stepped: Any) -> pa.Table:
        return stepped.rows.toArrow()

    def keys(self, state: Any) -> pa.Table:
        return state.frame.toArrow()

    def loop(self, state: Any) -> pa.Table | None:
        return None if state.loop is None else state.loop.toArrow()

    def again(self, ledger: list[pa.Table], clock: Clock) -> KeysThere:
        frames = map(self.side.spark.createDataFrame, ledger)
        return self.side.restore(reduce(DataFrame.unionAll, frames), clock)


@in_parts(2, deeper=4, of=4)
def test_a_computation_on_spark_is_the_reference_step(spark: SparkSession, data: st.DataObject) -> None:
    machine = data.draw(machines())
    is_the_reference(machine, There(spark, machine), data, 3)
