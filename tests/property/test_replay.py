"""A replay of any recorded epochs gives the ledger's rows again, whatever the definition and its execution (law L3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import assume
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import ApproxDistinct, Collect, Pipeline, Quantile
from tailrace.lake.catalog import Lake
from tailrace.settings import Settings
from tailrace.spark.replay import replay
from tailrace.sql.reasons import reasons
from tests.support.native import in_parts
from tests.support.recorded import record
from tests.support.sessions import session
from tests.support.strategies import epochs, pipelines

CASES = 3
"""How many random definitions are streamed into tables and replayed, in either execution."""

IN_PYTHON = {"labels": ApproxDistinct("label"), "all": Collect("price"), "middle": Quantile("value", 0.5)}


def holds(data: st.DataObject, pipeline: Pipeline) -> None:
    made = data.draw(epochs(pipeline, max_epochs=5))
    assume(sum(len(bundle) for bundle, _ in made) >= 6)
    restart = data.draw(st.integers(0, len(made)))
    first = data.draw(st.integers(0, len(made) - 1))
    last = data.draw(st.integers(first, len(made) - 1))
    with TemporaryDirectory() as folder:
        settings = Settings(warehouse=Path(folder) / "lake", driver_memory="2g", shuffle_partitions=1)
        spark, lake = session(settings, extra=PLAIN), Lake(settings)
        record(spark, lake, pipeline, made, restarts=[restart])
        for begin, end in {(0, len(made) - 1), (first, last)}:
            found = replay(spark, lake, pipeline, begin, end)
            assert found.ok, (found.counts, found.differences)
            assert found.counts or not any(bundle for bundle, _ in made[begin : end + 1])


PLAIN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@in_parts(CASES, of=3)
def test_L3_a_random_definition_replays_row_for_row_natively(plain: SparkSession, data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    assert not reasons(pipeline)
    holds(data, pipeline)


@in_parts(CASES, of=3)
def test_L3_a_random_definition_replays_row_for_row_in_python(plain: SparkSession, data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    pipeline = replace(pipeline, what={**pipeline.what, **IN_PYTHON})
    assert reasons(pipeline)
    holds(data, pipeline)
