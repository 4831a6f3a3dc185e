"""`tailrace explain`: what a definition does when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.console import Output
from tailrace.cli.definitions import load
from tailrace.cli.options import Definition, Json


def explain(
    definition: Definition,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL that runs, too.")] = False,
    json: Json = False,
) -> None:
    """Show what a definition does when it runs: its stages and where each runs, the state it keeps, its tables.

    The SQL texts come from the functions that a stream and a backfill run; JSON has them always. Nothing is started.
    """
    from tailrace.plan import builder, explainer

    output = Output(json)
    pipeline = load(definition)
    plans = [builder.build(stage) for stage in pipeline.stages]
    if json:
        *earlier, last = (explainer.data(plan) for plan in plans)
        output.data(last | ({"earlier": earlier} if earlier else {}))
        return
    for place, (stage, plan) in enumerate(zip(pipeline.stages, plans, strict=True)):
        output.text(*([""] if place else []), explainer.shown(stage, plan))
        for query in plan.queries if sql else ():
            output.whole("", explainer.sql(query))
