"""The plan of a computation, for `explain`: its stages, the state of a key, its tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tailrace.engines.choose import EngineChoice
from tailrace.lake.schema.contracts import Contract, spark_type
from tailrace.lake.schema.owned_tables import contracts
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.source_text import length
from tailrace.plan.plan_stages import Execution
from tailrace.plan.reading import reads, taken


def stages(computation: Computation) -> Iterator[tuple[str, Execution, str]]:
    """List the stages of an epoch in order: a stage's name, where it runs, and what it does."""
    log = computation.log
    yield "read", Execution.NATIVE, f"{taken(log)}; the event time is {log.event_time}"
    behind = f"more than {length(computation.lateness)} behind" if computation.lateness else "behind"
    yield "judge", Execution.PYTHON, f"too late is a record {behind} the watermark before the epoch"
    order = "they wait until the watermark has passed them, and come by event time, timers in between"
    if not computation.ordered:
        order = "those of an epoch come by event time, then the timers that are due"
    key = f"by {', '.join(computation.key)}" if computation.key else "of one key"
    kind = type(computation).__name__
    yield "records", Execution.PYTHON, f"{kind}.process_record, {key}; {order}"
    if computation.loops:
        yield "loop", Execution.PYTHON, f"{kind}.process_feedback, before them: what was fed back in the epoch before"
    yield "timers", Execution.PYTHON, f"{kind}.process_timer: of processing time first, then of event time, by instant"
    kept = "kept in the ledger, in the commit of the state that they come from"
    if computation.productions == "weak":
        kept = "not kept: computed again for those who read them and have to catch up"
    yield "productions", Execution.PYTHON, f"{computation.productions}: {kept}"
    held = "the oldest event time that a timer holds, or the watermark"
    if computation.loops:
        held = "the oldest event time that a timer holds or that is in flight, or the watermark"
    held += f" less {length(computation.lateness)}" if computation.lateness else ""
    yield "watermark", Execution.DRIVER, f"for those who read the productions: {held}"
    kinds = ["partial", "late", "rejected"]
    kinds[1:1] = ["production"] * (computation.productions == "strong") + ["feedback"] * computation.loops
    yield "ledger", Execution.NATIVE, f"to {computation.name}__ledger: {', '.join(kinds)}"


def plan_page(computation: Computation, engine: EngineChoice) -> RenderableType:
    """Lay out the plan as a page of text, with the engine on which a stream of the computation begins."""
    state = grid()
    for name, field in computation.fields.items():
        state.add_row(
            name, Text(field.type), "" if field.default is None else f"{field.default!r} before one was set", ""
        )
    heading = Text("kept for each key that has anything but defaults, with its pending timers", style="bold")
    return page(
        computation, reads(computation), engine, stages(computation), contracts(computation), (heading, state, "")
    )


def data(computation: Computation, engine: EngineChoice) -> dict[str, Any]:
    """Return the plan as JSON data, with the engine on which a stream of the computation begins."""
    return {
        "computation": computation.name,
        **plan_data(computation, engine, stages(computation)),
        "state": {name: field.type for name, field in computation.fields.items()},
        "produces": dict(computation.produced.columns),
        "tables": [table_data(contract.table, contract.columns) for contract in contracts(computation)],
    }


Stages: TypeAlias = Iterable[tuple[str, Execution, str]]
"""The stages of an epoch: for each its name, its execution, and a description."""


def page(
    definition: Computation | Map | Join,
    reads: str,
    engine: EngineChoice,
    stages: Stages,
    tables: Iterable[Contract],
    state: Iterable[RenderableType] = (),
) -> RenderableType:
    """Lay out a plan: what the definition reads, its engine, the stages of an epoch, the kept state, and the tables."""
    epoch, owned = grid(), grid()
    for number, (name, execution, says) in enumerate(stages, 1):
        epoch.add_row(str(number), Text(name), Text(execution.value, style="dim"), says)
    for contract in tables:
        owned.add_row(contract.table, Text(f"{len(contract.columns)} columns", style="dim"), contract.doc, "")
    return Group(
        Text.assemble((definition.name, "bold"), (f"  {reads}  fingerprint {definition.fingerprint}", "dim")),
        Text.assemble("folded by ", (engine.engine.value, "bold"), (f"  {engine.why}", "dim")),
        "",
        Text("an epoch, stage by stage", style="bold"),
        epoch,
        "",
        *state,
        Text("tables", style="bold"),
        owned,
    )


def plan_data(definition: Computation | Map | Join, engine: EngineChoice, stages: Stages) -> dict[str, Any]:
    """Return the JSON data that every plan has: the fingerprint, the engine, and the stages of an epoch."""
    return {
        "fingerprint": definition.fingerprint,
        "engine": engine.engine.value,
        "engine_because": engine.why,
        "stages": [{"stage": name, "execution": execution.value, "says": says} for name, execution, says in stages],
    }


def table_data(name: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table as JSON data: its name and the Spark type of each column."""
    return {"table": name, "columns": {one: spark_type(column.shape) for one, column in columns.items()}}


def grid() -> Table:
    """Make an empty table without borders and header, of four columns of which the last is folded."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(3):
        made.add_column(no_wrap=False)
    made.add_column(overflow="fold")
    return made
