"""A plan says what runs: each kind of definition is folded on each engine by what its plan names, and so committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import (
    AfterCount,
    ApproxDistinct,
    Col,
    Computation,
    Context,
    Count,
    Derive,
    Each,
    Fixed,
    Join,
    Map,
    Pipeline,
    Sessions,
    SparkColumns,
    minutes,
    seconds,
)
from tailrace.engines.spark.session import Starting
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import ENGINE, last_epoch
from tailrace.model.definition.definition import Definition
from tailrace.plan.plans import plans
from tailrace.plan.stages import Commit, Execution, Plan
from tailrace.settings import Settings
from tests.support.lakes.recorded_ledgers import no_spark
from tests.support.lakes.several_logs import CLICKS, VIEWS, Logs, Part, click, reached, view


@dataclass(frozen=True)
class Own(Fixed):
    """A windowing of one's own, if only by its name."""


@dataclass(frozen=True, kw_only=True)
class Counting(Computation):
    """It counts the clicks of each ad."""

    state = {"n": "bigint"}
    produces = {"n": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.n = (context.state.n or 0) + 1
        context.produce({"n": context.state.n})


PLAIN = Pipeline(name="plain", log=CLICKS, key="ad", what={"n": Count()}, where=Fixed(minutes(1)))
MAPPED = Map(name="mapped", log=CLICKS, each=Derive({"twice": Col("cents") * 2}), what=("ad", "twice"))
DEFINITIONS: list[Definition] = [
    PLAIN,
    replace(PLAIN, name="merging", where=Sessions(seconds(20))),
    replace(PLAIN, name="closing", when=AfterCount(2), finishing="close"),
    replace(PLAIN, name="assigned", where=Own(minutes(1))),
    replace(PLAIN, name="in_python", what={"ways": ApproxDistinct("cents")}),
    replace(PLAIN, name="later_in_python", where=Own(minutes(1)), what={"ways": ApproxDistinct("cents")}),
    replace(PLAIN, name="called", each=Each(lambda record: [{"more": 1}], {"more": "int"})),
    replace(PLAIN, name="for_spark", each=SparkColumns({"more": ("int", "1")})),
    replace(PLAIN, name="after_a_map", log=MAPPED.produced),
    Counting(name="counting", log=CLICKS, key="ad"),
    MAPPED,
    Map(name="mapped_by_spark", log=CLICKS, each=SparkColumns({"more": ("int", "1")}), what=("ad", "more")),
    Join(name="joined", left=VIEWS, right=CLICKS, on="ad", within=seconds(60)),
]

EXECUTIONS = {
    ("duckdb", Execution.DUCKDB, Execution.DUCKDB, Execution.DUCKDB): "SqlExecution",
    ("duckdb", Execution.PYTHON, Execution.DUCKDB, Execution.DUCKDB): "AssignedExecution",
    ("duckdb", Execution.DUCKDB, Execution.PYTHON, Execution.DUCKDB): "CombinedExecution",
    ("duckdb", Execution.PYTHON, Execution.PYTHON, Execution.PYTHON): "PythonExecution",
    ("spark", Execution.SPARK, Execution.SPARK, Execution.DUCKDB): "PartsExecution",
    ("spark", Execution.SPARK, Execution.SPARK, Execution.SPARK): "Native",
    ("spark", Execution.PYTHON, Execution.SPARK, Execution.SPARK): "Assigned",
    ("spark", Execution.PYTHON, Execution.PYTHON, Execution.PYTHON): "PerKey",
}
"""The class that folds windows, by the engine and by who assigns windows, adds up records and asks the triggers."""


COMMITS = {Commit.FILES: {False}, Commit.BRANCH: {True}, Commit.BY_SIZE: {True, False}}
"""Whether a commit may be one of Spark's, as its snapshot tells."""


def check(spark: Starting, lake: Lake, definitions: Sequence[Definition] = DEFINITIONS) -> None:
    """Fold an epoch of each definition, and compare who folds it and how it is committed with its plan."""
    planned = {one.definition.name: one for one in plans(definitions, lake.settings)}
    logs = Logs(lake)
    clicks = [click(2, "a", 3), click(3, "b", 1)]
    logs.land({"views": Part([view(1, "a")], reached(1)), "clicks": Part(clicks, reached(3))})
    group = FoldGroup(spark, lake, definitions)
    list(group.missed_epochs(last_epoch(lake, group.logs)))
    assert {fold.definition.name for fold in group} == planned.keys()
    folds: Iterable[Any] = group
    for fold in folds:
        compare(lake, planned[fold.definition.name], fold.side)
    group.close()


def compare(lake: Lake, plan: Plan, side: Any) -> None:
    name, ledger = plan.definition.name, plan.stage("ledger")
    head = lake.head(f"{name}__ledger")
    assert (head.number("epoch"), head.properties[ENGINE]) == (0, str(plan.engine))
    if plan.definition.windowed:
        stages = [plan.stage(one).execution for one in ("assign", "aggregate", "data triggers")]
        by = (plan.engine.engine.value, stages[0], stages[1], stages[2])
        assert type(side.execution).__name__ == EXECUTIONS[by], name
    else:
        # Python that is called for keys is the same on both engines, which differ in where it is called.
        assert type(side).__name__.startswith("Duck" if plan.engine.engine.value == "duckdb" else "Spark"), name
    snapshot = lake.table(ledger.facts["table"]).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    of_spark = "spark.app.id" in snapshot.summary.additional_properties
    assert of_spark in COMMITS[Commit(ledger.facts["commit"])], name
    for stage in plan.kind.stages:
        assert not stage.query or plan.query(stage.query).text, stage


def by_spark(settings: Settings) -> list[Definition]:
    """The definitions of which a stage is Spark's, whatever the engine."""
    found = {
        plan.definition.name
        for plan in plans(DEFINITIONS, settings)
        if any(stage.execution is Execution.SPARK for stage in plan.kind.stages)
    }
    return [one for one in DEFINITIONS if one.name in found]


def test_duckdb_folds_and_commits_as_planned_without_a_session_where_no_stage_is_sparks(settings: Settings) -> None:
    settings = settings.model_copy(update={"engine": "duckdb"})
    left = by_spark(settings)
    assert {one.name for one in left} == {"for_spark", "mapped_by_spark"}
    check(no_spark, Lake(settings), [one for one in DEFINITIONS if one not in left])


def test_spark_folds_and_commits_as_planned(plain: SparkSession, settings: Settings) -> None:
    # One for each class that folds: Spark takes seconds for each.
    some = ("plain", "assigned", "in_python", "called", "counting", "mapped", "joined")
    settings = settings.model_copy(update={"engine": "spark"})
    check(plain, Lake(settings), [one for one in DEFINITIONS if one.name in some])


def test_duckdb_folds_as_planned_what_spark_takes_through_its_steps(plain: SparkSession, settings: Settings) -> None:
    settings = settings.model_copy(update={"engine": "duckdb"})
    check(plain, Lake(settings), by_spark(settings))


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_without_windows_in_the_driver_executors_have_them_all(engine: Any, settings: Settings) -> None:
    of = settings.model_copy(update={"engine": engine, "windows_in_driver": 0})
    (plan,) = plans([PLAIN], of)
    expected = Execution.DUCKDB if engine == "duckdb" else Execution.SPARK
    assert plan.stage("data triggers").execution is expected
