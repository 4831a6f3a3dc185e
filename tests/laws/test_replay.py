"""A replay of any recorded epochs gives the ledger's rows again, whatever the definition and its execution (law L3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import ApproxDistinct, Collect, Pipeline, Quantile
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.sql.records.ways import reasons_for_python
from tailrace.verify.replay import replay
from tests.support.cases.strategies import epochs, examples, pipelines
from tests.support.depth import deep
from tests.support.engines.sessions import session
from tests.support.engines.spark_runs import in_parts
from tests.support.lakes.recorded_ledgers import record

IN_PYTHON = {"labels": ApproxDistinct("label"), "all": Collect("price"), "middle": Quantile("value", 0.5)}


def holds(data: st.DataObject, pipeline: Pipeline, engine: str) -> None:
    made = data.draw(epochs(pipeline, max_epochs=5))
    assume(sum(len(bundle) for bundle, _ in made) >= 6)
    restart = data.draw(st.integers(0, len(made)))
    first = data.draw(st.integers(0, len(made) - 1))
    last = data.draw(st.integers(first, len(made) - 1))
    with TemporaryDirectory() as folder:
        settings = Settings(
            warehouse=Path(folder) / "lake", driver_memory="2g", shuffle_partitions=1, engine=engine, memory="1GB"
        )
        lake = Lake(settings)
        record(lake, pipeline, made, session(settings, extra=PLAIN) if engine == "spark" else None, restarts=[restart])
        for begin, end in {(0, len(made) - 1), (first, last)}:
            found = replay(lake, pipeline, begin, end)
            assert found.ok, (found.counts, found.differences)
            assert found.engine.engine.value == engine
            ledger = lake.table(f"{pipeline.name}__ledger").scan().to_arrow()["epoch"].to_pylist()
            said = sum(count.ledger for count in found.counts.values())
            assert said == sum(begin <= epoch <= end for epoch in ledger)


PLAIN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def in_python(pipeline: Pipeline) -> Pipeline:
    """The definition with results that only Python computes."""
    made = replace(pipeline, what={**pipeline.what, **IN_PYTHON})
    assert reasons_for_python(made)
    return made


@examples(4, deeper=6)
@given(data=st.data())
def test_L3_a_random_definition_replays_row_for_row_natively(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    assert not reasons_for_python(pipeline)
    holds(data, pipeline, "duckdb")


@examples(4, deeper=6)
@given(data=st.data())
def test_L3_a_random_definition_replays_row_for_row_in_python(data: st.DataObject) -> None:
    holds(data, in_python(data.draw(pipelines())), "duckdb")


@in_parts(1, deeper=1, of=1)
def test_L3_a_random_definition_replays_row_for_row_natively_on_spark(plain: SparkSession, data: st.DataObject) -> None:
    holds(data, data.draw(pipelines()), "spark")


@deep
@in_parts(1, deeper=1, of=1)
def test_L3_a_random_definition_replays_row_for_row_in_python_on_spark(
    plain: SparkSession, data: st.DataObject
) -> None:
    holds(data, in_python(data.draw(pipelines())), "spark")
