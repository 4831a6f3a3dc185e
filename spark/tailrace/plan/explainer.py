"""The presentation of a plan: as text on the terminal for people, as JSON data for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from functools import singledispatch
from typing import Any

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from tailrace.engines.choose import EngineChoice
from tailrace.lake.schema.contracts import spark_type
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.source_text import length
from tailrace.plan.plan_stages import (
    AdvanceWatermark,
    Aggregate,
    Assign,
    Close,
    DataTriggers,
    Execution,
    Follow,
    Judge,
    KeptState,
    Meet,
    Plan,
    PlannedCommit,
    PlannedQuery,
    Prepare,
    Read,
    Stage,
    Take,
    WatermarkTriggers,
)
from tailrace.plan.reading import reads

_COLOURS = {Execution.NATIVE: "green", Execution.PYTHON: "yellow", Execution.DRIVER: "cyan"}


def plan_page(pipeline: Pipeline, plan: Plan, engine: EngineChoice) -> RenderableType:
    """Lay out the plan as a page of text, with the engine on which a stream of the pipeline begins."""
    return Group(
        Text.assemble((plan.pipeline, "bold"), (f"  {reads(pipeline)}  fingerprint {plan.fingerprint}", "dim")),
        Text.assemble("folded by ", (engine.engine.value, "bold"), (f"  {engine.why}", "dim")),
        "",
        _heading("an epoch, stage by stage"),
        _stages(plan),
        "",
        _heading("kept for each key and window while it is open"),
        _state(plan.state),
        "",
        _heading("tables"),
        _tables(plan),
    )


def sql(query: PlannedQuery) -> Text:
    """Lay out an SQL text of a plan under its name, in lines that a terminal may break but a file gets whole."""
    lexed = Syntax(pretty(query.text), "sql", theme="ansi_dark", background_color="default").highlight(
        pretty(query.text)
    )
    return Text("\n").join([Text(f"-- {query.name}: {query.gives}", style="bold"), lexed])


def data(plan: Plan, engine: EngineChoice) -> dict[str, Any]:
    """Return the plan as JSON data, with the engine on which a stream begins; lengths of time are microseconds."""
    return {
        "pipeline": plan.pipeline,
        "fingerprint": plan.fingerprint,
        "engine": engine.engine.value,
        "engine_because": engine.why,
        "stages": [_stage_data(stage) for stage in plan.stages],
        "state": {
            "columns": [asdict(column) for column in plan.state.columns],
            "bytes": plan.state.bytes,
            "open_for": plan.state.open_for,
            "overlapping": plan.state.overlapping,
        },
        "tables": [
            {
                "table": contract.table,
                "doc": contract.doc,
                "partition_by": list(contract.partition_by),
                "columns": {name: spark_type(column.shape) for name, column in contract.columns.items()},
            }
            for contract in plan.tables
        ],
        "queries": [asdict(query) for query in plan.queries],
    }


def pretty(sql: str, width: int = 80) -> str:
    """Break an SQL text into lines at its clauses, and at the first comma past a width; only white space is changed.

    >>> print(pretty("SELECT a FROM (SELECT 1 AS a) WHERE a > 0"))
    SELECT a
    FROM (
      SELECT 1 AS a)
    WHERE a > 0
    """
    lines, depths = [""], [0]
    for token in _TOKENS.findall(sql):
        clause = token.strip() in _CLAUSES
        if clause and lines[-1].endswith("(") and token.strip() in ("SELECT", "WITH"):
            depths[-1] += 1
        full = len(lines[-1]) > width and lines[-1].endswith(", ")
        if (clause or full) and lines[-1].strip():
            lines.append("  " * depths[-1] + ("" if clause else "    "))
        lines[-1] += token
        if token == "(":
            depths.append(depths[-1])
        elif token == ")" and len(depths) > 1:
            depths.pop()
    return "\n".join(line.rstrip() for line in lines)


_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP BY", "FULL OUTER JOIN", "CROSS JOIN", "UNION ALL", "WITH")
_TOKENS = re.compile(
    r"'(?:\\.|[^'\\])*'|`(?:``|[^`])*`|[()]|, "
    r"|\b(?:SELECT|FROM|WHERE|GROUP BY|FULL OUTER JOIN|CROSS JOIN|UNION ALL|WITH)\b ?|[A-Za-z_]\w*"
    r"|(?:(?!, )[^'`()A-Za-z_])+"
)


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _grid() -> Table:
    return Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))


def _stages(plan: Plan) -> Table:
    made = _grid()
    made.add_column(justify="right", style="dim", no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    reasons: set[str] = set()
    for number, stage in enumerate(plan.stages, 1):
        choice = stage.choice
        why = [] if choice.why in reasons else [Text(choice.why, style="dim")]
        reasons.add(choice.why)
        lines = Text("\n").join([*(Text(line) for line in _lines(stage)), *why])
        colour = _COLOURS[choice.execution]
        made.add_row(str(number), Text(_title(stage), style="bold"), Text(choice.execution.value, style=colour), lines)
    return made


def _state(state: KeptState) -> Group:
    made = _grid()
    made.add_column(no_wrap=True)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for column in state.columns:
        made.add_row(column.name, column.type, column.holds)
    texts = " plus texts" if any(column.bytes is None for column in state.columns) else ""
    many = (
        "as many windows of a key as the data makes"
        if state.overlapping is None
        else f"{state.overlapping} window{'s' if state.overlapping > 1 else ''} of a busy key at a time"
    )
    stays = (
        f"until the watermark is {length(state.open_for)} past its end"
        if state.open_for
        else "until the watermark reaches its end"
    )
    return Group(made, Text(f"{state.bytes} bytes{texts}; it stays {stays}: {many}", style="dim"))


def _tables(plan: Plan) -> Table:
    made = _grid()
    made.add_column(no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    made.add_column(overflow="fold")
    for contract in plan.tables:
        layout = f", partitioned by {', '.join(contract.partition_by)}" if contract.partition_by else ""
        columns = f"{len(contract.columns)} columns"
        made.add_row(contract.table, Text(columns, style="dim"), f"{contract.doc}{layout}")
    return made


@singledispatch
def _lines(stage: Stage) -> Iterator[str]:
    """Describe what a stage does in this definition, line by line."""
    raise TypeError(f"no words for {type(stage).__name__}")


@_lines.register
def _(stage: Read) -> Iterator[str]:
    known = f", a record becomes known at {stage.arrival_time}" if stage.arrival_time else ""
    yield f"{len(stage.columns)} columns of log {stage.log}; its event time is {stage.event_time}{known}"
    unknown = "rejected" if stage.unknown == "reject" else "read without it"
    yield f"rejected: event times outside [{stage.earliest:.10}, {stage.latest:.10})"
    for log, bound in stage.ahead.items():
        yield f"rejected: event times of {log} more than {bound} ahead of the record's arrival"
    yield f"a record with an unknown column is {unknown}"
    if doubles := [name for name, type in stage.columns.items() if type == "double"]:
        yield f"of a number in {', '.join(doubles)} 15 digits are always kept, and 17 at most"


@_lines.register
def _(stage: Take) -> Iterator[str]:
    yield f"{len(stage.columns)} columns of what {stage.earlier} fires; an answer happened at {stage.timestamp}"
    yield f"what {stage.earlier} takes back is taken out again"


@_lines.register
def _(stage: Prepare) -> Iterator[str]:
    yield from stage.steps
    if stage.keep is not None:
        yield f"kept are records with {stage.keep}"


@_lines.register
def _(stage: Assign) -> Iterator[str]:
    yield f"{stage.where}: each record is in {stage.per_record}"


@_lines.register
def _(stage: Judge) -> Iterator[str]:
    if stage.allowed_lateness:
        yield f"too late once the watermark was {length(stage.allowed_lateness)} past the window's end"
    else:
        yield "too late once the watermark had reached the window's end"
    yield f"judged by {stage.by}"


@_lines.register
def _(stage: Aggregate) -> Iterator[str]:
    yield f"by {', '.join(stage.key) or 'window alone'}" + (" and window" if stage.key else "")
    yield ", ".join(f"{name} ({how})" for name, how in stage.parts.items())


@_lines.register
def _(stage: Meet) -> Iterator[str]:
    yield (
        "overlapping windows become one, which starts anew"
        if stage.merges
        else "with the open window of the same key and span"
    )


@_lines.register
def _(stage: DataTriggers) -> Iterator[str]:
    yield stage.when
    yield {
        "discarding": "discarding: a pane holds what came since the one before",
        "accumulating": "accumulating: a pane holds everything so far",
        "retracting": "retracting: a pane holds everything so far, and takes the one before back first",
    }[stage.accumulation]


@_lines.register
def _(stage: AdvanceWatermark) -> Iterator[str]:
    if stage.earlier is not None:
        held = "" if stage.held is None else f", but no further than {stage.held}"
        yield f"that of {stage.earlier}{held}; the processing time is {stage.clock}"
        return
    behind = f"by {stage.strategy}" if stage.behind is None else "the latest event time"
    behind = f"{length(stage.behind)} behind {behind}" if stage.behind else behind
    yield f"{behind}; the processing time is {stage.clock}"
    idle = (
        "however long it has nothing new"
        if stage.idle is None
        else f"until it has nothing new for {length(stage.idle)}"
    )
    yield f"of several partitions the least counts; each is waited for, {idle}"


@_lines.register
def _(stage: WatermarkTriggers) -> Iterator[str]:
    some = "even with nothing new" if stage.on_time == "always" else "only with something new"
    yield f"a window that the watermark passes fires on time, {some}"


@_lines.register
def _(stage: Close) -> Iterator[str]:
    out = stage.after + stage.reach
    yield f"at the watermark, {length(out)} past the window's end" if out else "at the watermark"
    yield "a last pane for what is pending" + (", or with nothing" if stage.closing == "always" else "")
    if stage.finishing == "close":
        yield "a window whose trigger is done takes no more records"


@_lines.register
def _(stage: PlannedCommit) -> Iterator[str]:
    yield f"to {stage.table}: {', '.join(stage.kinds)}"


@_lines.register
def _(stage: Follow) -> Iterator[str]:
    yield f"to {stage.table}, by ({', '.join(stage.version)})"


def _title(stage: Stage) -> str:
    if isinstance(stage, Meet):
        return "merge" if stage.merges else "join"
    return _TITLES[type(stage)]


_TITLES: dict[type, str] = {
    Read: "read",
    Take: "take",
    Prepare: "prepare",
    Assign: "assign",
    Judge: "judge",
    Aggregate: "aggregate",
    DataTriggers: "data triggers",
    AdvanceWatermark: "watermark",
    WatermarkTriggers: "on time",
    Close: "close",
    PlannedCommit: "ledger",
    Follow: "answers",
}


def _stage_data(stage: Stage) -> dict[str, Any]:
    plain = asdict(stage)
    choice = plain.pop("choice")
    execution = choice["execution"]
    name = execution.value if isinstance(execution, Enum) else execution
    return {"stage": _title(stage), "execution": name, "why": choice["why"], "says": list(_lines(stage)), **plain}
