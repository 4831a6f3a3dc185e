"""`tailrace explain`: show how a definition runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.cli.runtime.options import EngineName, settings_on
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import chain_data

if TYPE_CHECKING:
    from tailrace.plan.explainer import Sizes


def explain(
    definition: str,
    sql: bool = False,
    engine: EngineName = None,
    json: bool = False,
) -> None:
    """Show how a definition runs: its stages and the engine of each, its state, and its tables.

    The plan is for the engine on which a stream would begin, or for the engine that --engine names. The SQL texts are
    in the dialect of this engine, and come from the same functions that streams and backfills use. JSON output always
    includes the SQL texts. If a table already exists, its size is shown. The command runs no part of the definition,
    and starts no Spark.
    """
    from tailrace.plan.explainer import plan_data, plan_page, sql_page
    from tailrace.plan.plans import plans

    output, settings = Output(json), settings_on(engine)
    made = plans([load_any(definition)], settings)
    sizes = _sizes(output, settings, [table.table for plan in made for table in plan.tables])
    if json:
        output.data(chain_data(plan_data(plan, sizes) for plan in made))
        return
    for place, plan in enumerate(made):
        output.text(*([""] if place else []), plan_page(plan, sizes))
        for query in plan.kind.queries if sql else ():
            output.verbatim("", sql_page(query))


def _sizes(output: Output, settings: Settings, tables: list[str]) -> Sizes:
    """Return a mapping from the name of each existing table in `tables` to the table's size.

    The mapping is empty if there is no lake, or if the lake cannot be opened.
    """
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.read.table_sizes import table_sizes
    from tailrace.lake.schema.lake_errors import LakeError

    lake = Lake(settings, looks=True)
    try:
        return table_sizes(lake, tables) if lake.exists else {}
    except LakeError as error:
        output.say(f"the sizes of tables are not known: {error}")
        return {}
