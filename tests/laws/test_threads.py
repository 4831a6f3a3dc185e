"""Neither the number of threads nor what they do first decides an answer; nor does the order of files and rows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, seed
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, seconds
from tailrace.model.combiners.lists import TopK
from tailrace.model.combiners.sketches import ApproxDistinct, ApproxQuantile
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.windows import Global
from tailrace.sql.records.ways import Way, way
from tailrace.testing import Epoch, fold
from tests.laws.test_engines import batched, expected
from tests.support.cases.few import FEW, few_epochs
from tests.support.cases.stages import chains
from tests.support.cases.strategies import (
    BASE,
    EVERYTHING,
    LOG,
    bundles,
    each_time_the_same,
    epochs,
    perhaps_told,
    pipelines,
)
from tests.support.checks.batch_answers import batch
from tests.support.checks.laws import same_answers
from tests.support.depth import cases, deep
from tests.support.engines.threads import THREADS, OnDuckOnThreads, OnSparkOnThreads, ThreadedLake, disorder

SKETCHES = {"about": ApproxDistinct("label"), "about_middle": ApproxQuantile("value", 0.5)}
ALL = Pipeline(name="all", log=LOG, key="lane", what=dict(EVERYTHING), where=Global())
WITH_SKETCHES = replace(ALL, name="with_sketches", what={**SKETCHES, "dearest": TopK("label", 2, by="price")})

_MOST = [pytest.param(threads, marks=[] if threads == max(THREADS) else deep) for threads in THREADS]
"""The numbers of threads, of which each change is tried with the highest: the random definitions draw theirs."""


def drawn_engine(data: st.DataObject, *, python: bool = False) -> OnDuckOnThreads:
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    return OnDuckOnThreads(data.draw(st.sampled_from(THREADS)), chance, python)


def told(count: int, chance: random.Random) -> list[dict[str, Any]]:
    """So many records, of which many are at the same time, have equal values, or lack them."""
    return [
        {
            "id": 0,
            "at": BASE + seconds(chance.randrange(8)),
            "place": chance.choice(["a", "b"]),
            "lane": chance.choice([1, 1, 1, 2, None]),
            "value": chance.choice([None, *range(-3, 9)]),
            "price": chance.choice([None, 1, 2, 3]),
            "weight": chance.choice([0.1, 0.2, 1e16, -1e16, 1e-9, 0.7, None]),
            "label": chance.choice(["x", "y", "Z", "é", "", None]),
            "good": chance.choice([True, False, None]),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("threads", _MOST)
@pytest.mark.parametrize("pipeline", [ALL, WITH_SKETCHES], ids=lambda one: one.name)
def test_T4_every_combiner_says_the_same_of_many_records_on_any_threads(pipeline: Pipeline, threads: int) -> None:
    chance = random.Random(threads)
    one, other = told(400, chance), told(400, chance)
    made = [(one, Clock(0, BEGINNING, 0)), (other, Clock(1, BEGINNING, 1)), ([], Clock(2, END_OF_TIME, 2))]
    assert OnDuckOnThreads(threads, chance).said(pipeline, made) == expected(pipeline, made)
    engine = OnDuckOnThreads(threads, chance)
    same_answers(batched(engine, pipeline, one), batch(pipeline, one), "answers of finished input")


@seed(1)
@each_time_the_same(cases(6, deeper=200))
@given(data=st.data())
def test_L1_T4_a_random_definition_says_the_same_on_any_threads(data: st.DataObject) -> None:
    pipeline = data.draw(perhaps_told(data.draw(pipelines())))
    made = data.draw(epochs(pipeline))
    wanted = expected(pipeline, made)
    assert drawn_engine(data).said(pipeline, made) == wanted
    if way(pipeline) is not Way.SQL or data.draw(st.integers(0, 3)) == 0:
        assert drawn_engine(data, python=True).said(pipeline, made) == wanted


@seed(2)
@each_time_the_same(cases(3, deeper=60))
@given(data=st.data())
def test_L1_T4_random_stages_say_the_same_on_any_threads(data: st.DataObject) -> None:
    pipeline = data.draw(chains())
    made = data.draw(epochs(pipeline.stages[0], max_epochs=6))
    assert drawn_engine(data).said(pipeline, made) == expected(pipeline, made)


@seed(3)
@each_time_the_same(cases(4, deeper=120))
@given(data=st.data())
def test_L1_the_answers_of_finished_input_are_the_batchs_on_any_threads(data: st.DataObject) -> None:
    pipeline, records = data.draw(perhaps_told(data.draw(pipelines()))), data.draw(bundles(20))
    assume(records)
    same_answers(batched(drawn_engine(data), pipeline, records), batch(pipeline, records), "answers of finished input")


@pytest.mark.parametrize("threads", _MOST)
def test_L1_X2_a_lake_written_in_any_order_has_the_rows_of_a_fold(threads: int) -> None:
    @seed(threads)
    @each_time_the_same(cases(1, deeper=10))
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        pipeline, chance = data.draw(pipelines()), random.Random(data.draw(st.integers(0, 2**32)))
        bundles_of = [data.draw(bundles(12)) for _ in range(3)]
        made: list[Any] = [Epoch(bundle) for bundle in bundles_of]
        folded = fold(pipeline, made, ends=False)
        assume(len(folded) > 2)
        with TemporaryDirectory() as folder, disorder(chance):
            lake = ThreadedLake(Path(folder) / "lake", threads)
            try:
                for bundle in bundles_of:
                    lake.stream(pipeline, bundle)
                    if chance.random() < 0.3:
                        lake.stream.restart()
                assert lake.panes(pipeline) == folded
                assert lake.answers(pipeline) == folded.answers
                lake.backfill(pipeline)
                again = lake.backfill(pipeline)
                assert (again.changed, again.retracted) == (0, 0)
                lake.check(pipeline)
            finally:
                lake.close()

    holds()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("partitions", "name", "many"),
    [
        (3, "months_retracting", 3),
        *(
            pytest.param(partitions, name, len(few_epochs()), marks=deep)
            for partitions in THREADS
            for name in ("months_retracting", "sessions_retracting", "fixed_windows_with_a_phase_accumulating")
        ),
    ],
)
def test_L1_T4_spark_says_the_same_of_rows_in_any_order_and_partition(
    plain: SparkSession, partitions: int, name: str, many: int
) -> None:
    pipeline, made = FEW[name], few_epochs()[:many]
    engine = OnSparkOnThreads(plain, chance=random.Random(partitions), partitions=partitions)
    assert engine.said(pipeline, made) == expected(pipeline, made)
