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
from tailrace.model.base.expressions import Col
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.step.reference import fold_stages
from tailrace.model.step.step import WindowsState
from tailrace.settings import Settings
from tests.support.cases.stages import chains
from tests.support.cases.strategies import EVERYTHING, Epochs, each_time_the_same, epochs, pipelines
from tests.support.depth import cases
from tests.support.engines.spark_runs import arrow_bundle, said_by_reference, said_by_rows
from tests.support.lakes.recorded_ledgers import no_spark

TWICE = Derive({"twice": Col("lane") + Col("lane")})
"""A step that may fail, which the definitions share."""


@st.composite
def companies(draw: st.DrawFn) -> list[Pipeline]:
    """Definitions over one log, of which some have the same steps, keys, windows and filters, and one has stages."""
    made = list[Pipeline]()
    for kind in range(2):
        one = draw(pipelines())
        if draw(st.booleans()):
            one = replace(one, each=TWICE)
        for number in range(3):
            names = draw(st.lists(st.sampled_from(sorted(EVERYTHING)), min_size=1, max_size=4, unique=True))
            own = one if number == 0 else replace(one, what={name: EVERYTHING[name] for name in names})
            made.append(replace(own, name=f"of_{kind}_{number}"))
    log = made[0].log
    return [replace(one, log=log) for one in made] + [draw(chains())][: draw(st.integers(0, 1))]


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
