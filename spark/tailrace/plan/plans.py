"""Create the plan of any definition: the work of one epoch of a stream, on the engine with which the stream begins.

`plan_kind` has a function for each kind of definition. To support a new kind, register a function with `plan_kind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch

from tailrace.engines.choose import EnginePolicy
from tailrace.lake.schema.owned_tables import contracts
from tailrace.model.definition.chain import chain, keeping_answers
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.plan.computation_plan import computation_plan
from tailrace.plan.join_plan import join_plan
from tailrace.plan.map_plan import map_plan
from tailrace.plan.pipeline_plan import pipeline_plan
from tailrace.plan.stages import Beginning, KindPlan, Plan
from tailrace.settings import Settings


@singledispatch
def plan_kind(definition: Definition, begin: Beginning) -> KindPlan:
    """Return the plan of an epoch of a definition, for a stream that begins under the conditions `begin`."""
    raise KindError("plan", definition)


plan_kind.register(Pipeline, pipeline_plan)
plan_kind.register(Computation, computation_plan)
plan_kind.register(Map, map_plan)
plan_kind.register(Join, join_plan)


def plan(definition: Definition, settings: Settings, *, answers: bool = True) -> Plan:
    """Return the plan of a definition, for the engine on which a stream with these settings begins.

    >>> from tailrace.model.samples.visits import example
    >>> made = plan(example(), Settings(engine="duckdb"))
    >>> [stage.name for stage in made.kind.stages][-2:], made.stage("ledger").execution.value
    (['watermark', 'ledger'], 'process')
    """
    choice = EnginePolicy.of(settings).for_stream(definition)
    begin = Beginning(choice, settings.windows_in_driver != 0, answers)
    tables = tuple(one for one in contracts(definition) if answers or one.table != definition.name)
    return Plan(definition, choice, plan_kind(definition, begin), tables)


def plans(definitions: Iterable[Definition], settings: Settings) -> Sequence[Plan]:
    """Return the plans of the definitions and of all definitions that they read.

    A plan comes after the plans of its inputs.
    """
    given = tuple(definitions)
    answered = keeping_answers(given)
    stages = {stage.name: stage for one in given for stage in chain(one)}
    return [plan(stage, settings, answers=stage.name in answered) for stage in stages.values()]
