"""A map on Spark gives what the reference gives, as it does on DuckDB (`tests/engines`)."""

from __future__ import annotations

from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.spark.map_step import SparkMap
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.settings import Settings
from tests.support.cases.maps import by_reference, by_rows, random_maps
from tests.support.cases.strategies import bundles
from tests.support.engines.spark_runs import arrow_bundle, in_parts


@in_parts(2, deeper=8, of=8)
def test_L1_a_map_gives_what_the_reference_gives(plain: SparkSession, data: st.DataObject) -> None:
    definition, bundle = data.draw(random_maps()), data.draw(bundles(12))
    clock = Clock(3, 0, 1_000)
    one = SparkMap(plain, Lake(Settings()), definition, EngineChoice(Engine.SPARK, "it is asked for"))
    rows = one.made(arrow_bundle(definition.log, bundle, clock.epoch), clock, 1).toArrow().to_pylist()
    assert by_rows(definition, rows) == by_reference(definition, [(bundle, clock)])
