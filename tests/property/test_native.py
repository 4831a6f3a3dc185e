"""The native execution says what the reference says, pane for pane, late record for late record (DESIGN section 2)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.native import run_native, said_by_reference
from support.strategies import epochs, pipelines

from tailrace.model import examples
from tailrace.model.clock import Clock
from tailrace.model.reference import fold
from tailrace.model.time import END_OF_TIME

CASES = 64
"""How many random definitions are run through real Spark."""


@pytest.fixture
def plain(spark: SparkSession) -> SparkSession:
    """The session without generated code: a definition is run for a few tiny epochs, which compiling would dwarf."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    return spark


@pytest.mark.parametrize("number", range(6, 15))
def test_each_figure_of_the_paper_comes_out_natively(spark: SparkSession, number: int) -> None:
    pipeline = examples.figure(number)
    epochs_ = examples.micro_batches() if number == 11 else examples.element_at_a_time()
    if number in (6, 10):
        epochs_ = [(examples.records(), Clock(0, END_OF_TIME, 0))]
    run = fold(pipeline, epochs_)
    assert run_native(spark, pipeline, epochs_) == said_by_reference(pipeline, run.panes, run.late)


@settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_a_random_definition_over_random_epochs_says_the_same_natively(
    plain: SparkSession, data: st.DataObject
) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline))
    assume(sum(len(bundle) for bundle, _ in made) >= 6 and len(made) <= 7)
    run = fold(pipeline, made)
    assume(run.panes)
    assert run_native(plain, pipeline, made) == said_by_reference(pipeline, run.panes, run.late)
