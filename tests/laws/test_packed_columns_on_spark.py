"""Lists that are unpacked say on Spark what the reference says of them, by themselves and in pairs (L1)."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.model.step.reference import fold_stages
from tailrace.sql.records.ways import reasons
from tests.support.cases.stages import unpackings
from tests.support.cases.strategies import epochs
from tests.support.engines.spark_runs import in_parts, run_stages, said_by_reference


@in_parts(1, deeper=12, of=6)
def test_unpacked_lists_say_the_same_natively(plain: SparkSession, data: st.DataObject) -> None:
    pipeline = data.draw(unpackings())
    assert not any(map(reasons, pipeline.stages))
    made = data.draw(epochs(pipeline.stages[0], max_epochs=6))
    assume(sum(len(bundle) for bundle, _ in made) >= 6)
    runs = fold_stages(pipeline, made)
    assume(any(not pane.retraction for pane in runs[-1].panes))
    found = [said_by_reference(one, run.panes, run.late) for one, run in zip(pipeline.stages, runs, strict=True)]
    assert run_stages(plain, pipeline, made) == found
