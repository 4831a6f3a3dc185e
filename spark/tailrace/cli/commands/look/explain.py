"""`tailrace explain`: what a definition does when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.runtime.definitions import load_any
from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.terminal.console import Output
from tailrace.settings import Settings


def explain(
    definition: Definition,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL that runs, too.")] = False,
    json: Json = False,
) -> None:
    """Show what a definition does when it runs: its stages and where each runs, the state it keeps, its tables.

    The SQL texts come from the functions that a stream and a backfill run; JSON has them always. Nothing is started.
    """
    from tailrace.engines.choose import Bounds
    from tailrace.model.definition.chain import chain, keeping_answers
    from tailrace.model.definition.computation import Computation
    from tailrace.model.definition.join import Join
    from tailrace.model.definition.map import Map
    from tailrace.plan import builder, computation_plan, explainer, join_plan, map_plan

    output, bounds = Output(json), Bounds.of(Settings())
    stages = chain(load_any(definition))
    answered = keeping_answers(stages[-1:])
    if json:
        *earlier, last = (
            computation_plan.data(stage, bounds.for_stream(stage))
            if isinstance(stage, Computation)
            else map_plan.data(stage, bounds.for_stream(stage))
            if isinstance(stage, Map)
            else join_plan.data(stage, bounds.for_stream(stage))
            if isinstance(stage, Join)
            else explainer.data(builder.build(stage, answers=stage.name in answered), bounds.for_stream(stage))
            for stage in stages
        )
        output.data(last | ({"earlier": earlier} if earlier else {}))
        return
    for place, stage in enumerate(stages):
        output.text(*([""] if place else []))
        if isinstance(stage, Computation):
            output.text(computation_plan.plan_page(stage, bounds.for_stream(stage)))
            continue
        if isinstance(stage, Join):
            output.text(join_plan.plan_page(stage, bounds.for_stream(stage)))
            if sql:
                output.whole("", explainer.sql(join_plan.query(stage)))
            continue
        if isinstance(stage, Map):
            output.text(map_plan.plan_page(stage, bounds.for_stream(stage)))
            if sql and (query := map_plan.query(stage)) is not None:
                output.whole("", explainer.sql(query))
            continue
        plan = builder.build(stage, answers=stage.name in answered)
        output.text(explainer.plan_page(stage, plan, bounds.for_stream(stage)))
        for query in plan.queries if sql else ():
            output.whole("", explainer.sql(query))
