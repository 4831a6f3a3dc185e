"""What a definition gives does not depend on the other definitions of its stream, nor on the threads that fold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import assume, given, seed
from hypothesis import strategies as st

from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.conditions import Match
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import seconds
from tailrace.model.combiners.basic import Combiner, Count, Max, Sum
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.step.reference import fold_stages
from tailrace.model.step.step import WindowsState
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import ACCUMULATING
from tailrace.model.windows.windows import Fixed, Global, Sessions, Sliding, Windowing
from tailrace.settings import Settings
from tests.support.cases.few import few_epochs
from tests.support.cases.stages import chains
from tests.support.cases.strategies import LOG, Epochs, each_time_the_same, epochs, pipelines
from tests.support.depth import cases
from tests.support.engines.spark_runs import arrow_bundle, said_by_reference, said_by_rows
from tests.support.lakes.recorded_ledgers import no_spark


def lanes(times: int) -> Derive:
    """A step that may fail, and whose column has the same name whatever it computes."""
    return Derive({"lanes": Col("value") * times})


SUMS: list[dict[str, Combiner]] = [
    {"a": Sum("value"), "b": Sum("lanes")},
    {"a": Sum("lane"), "b": Sum("lanes"), "c": Count()},
    {"a": Count(), "b": Sum("lanes"), "c": Max("value")},
    {"a": Sum("lanes"), "b": Sum("value")},
]
"""Results of the same names, in which different columns are added up."""


def neighbours(one: Pipeline, where: Windowing, sums: Sequence[dict[str, Combiner]]) -> list[Pipeline]:
    """A definition twice, and others that differ from it in one part each; next to each other they have other sums."""
    near = [
        replace(one, keep=Match("value", ">", 2)),
        replace(one, key=("lane",)),
        replace(one, where=where),
        replace(one, each=lanes(3)),
    ]
    return [replace(each, what=sums[place % len(sums)]) for place, each in enumerate((one, one, *near))]


@st.composite
def companies(draw: st.DrawFn) -> list[Pipeline]:
    """Definitions over one log with some equal parts; one may have stages.

    Some have the same steps, keys, windows and filters. From each of these, another differs in one of them alone.
    """
    stages = [draw(chains())][: draw(st.integers(0, 1))]
    where = draw(_WINDOWS)
    # The windows of other keys have no phase.
    drawn = replace(draw(pipelines(where=where)), where=where)
    log = stages[0].sources[0] if stages else drawn.log
    one, other = replace(drawn, log=log, each=lanes(2), keep=None), replace(draw(pipelines()), log=log)
    named = neighbours(one, draw(_WINDOWS), draw(st.permutations(SUMS)))
    made = [replace(each, name=f"company_{place}") for place, each in enumerate([*named, one, other])]
    return [*draw(st.permutations(made)), *stages]


_WINDOWS = st.sampled_from([Fixed(seconds(4)), Sliding(seconds(6), every=seconds(2)), Global(), Sessions(seconds(2))])


def in_company(folder: Path, definitions: Sequence[Pipeline], made: Epochs, threads: int) -> dict[str, Any]:
    """Fold epochs into definitions in one stream; give what each stage's ledger says, by the stage's name."""
    lake = Lake(Settings(warehouse=folder, engine="duckdb", memory="1GB", threads=threads))
    group = FoldGroup(no_spark, lake, definitions, follow_every=2)
    for records, clock in made:
        passed = {
            log.name: PassedEpoch.of(arrow_bundle(log, records, clock.epoch), clock)
            for log in (definition.log for definition in definitions if not isinstance(definition.log, Definition))
        }
        reading, phases = group.landing(passed), Phases()
        group.stage(reading, phases)
        group.publish(reading, phases)
        group.follow()
    stages = [fold.definition for fold in group]
    group.close()
    return {
        stage.name: said_by_rows(stage, lake.table(f"{stage.name}__ledger").scan().to_arrow())
        for stage in stages
        if isinstance(stage, Pipeline)
    }


def alone(definition: Pipeline, made: Epochs) -> dict[str, Any]:
    """What the reference says of each stage of a definition."""
    runs = fold_stages(definition, made, [WindowsState(generation=1) for _ in definition.stages])
    return {
        stage.name: said_by_reference(stage, run.panes, run.late, run.rejected)
        for stage, run in zip(definition.stages, runs, strict=True)
    }


@seed(1)
@each_time_the_same(cases(2, deeper=40))
@given(data=st.data())
def test_T4_a_definition_in_company_gives_what_it_gives_alone(data: st.DataObject) -> None:
    definitions = data.draw(companies())
    made = [
        (records, replace(clock, epoch=place, signals=()))
        for place, (records, clock) in enumerate(data.draw(epochs(definitions[0], max_epochs=4)))
    ]
    assume(sum(len(records) for records, _ in made) >= 4)
    expected = dict[str, Any]()
    for definition in definitions:
        expected |= alone(definition, made)
    with TemporaryDirectory() as folder:
        assert in_company(Path(folder), definitions, made, data.draw(st.sampled_from([1, 2, 8]))) == expected


def test_T4_definitions_that_differ_in_one_part_alone_share_nothing_else(tmp_path: Path) -> None:
    one = Pipeline(
        name="one", log=LOG, key=("place",), each=lanes(2), what=SUMS[0], where=Fixed(seconds(4)), how=ACCUMULATING,
        when=Repeat(AfterCount(1)),
    )  # fmt: skip
    made = [(records, replace(clock, epoch=place, signals=())) for place, (records, clock) in enumerate(few_epochs())]
    definitions = [replace(each, name=f"near_{n}") for n, each in enumerate(neighbours(one, Fixed(seconds(2)), SUMS))]
    expected = dict[str, Any]()
    for definition in definitions:
        expected |= alone(definition, made)
    assert in_company(tmp_path, definitions, made, 2) == expected
