"""Present a plan, either as text for people or as JSON data for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from tailrace.lake.schema.contracts import Contract
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Arrivals
from tailrace.plan.stages import Execution, KeptState, Plan, PlannedQuery, Stage

if TYPE_CHECKING:
    from tailrace.lake.read.table_sizes import TableSize

_COLOURS = {Execution.DUCKDB: "green", Execution.SPARK: "green", Execution.PYTHON: "yellow", Execution.PROCESS: "cyan"}

Sizes: TypeAlias = "Mapping[str, TableSize]"
"""A mapping from the name of each existing table to its size."""


def plan_page(plan: Plan, sizes: Sizes) -> RenderableType:
    """Return a plan as a page of text that includes the sizes of the existing tables."""
    definition, state = plan.definition, plan.kind.state
    identity = f"fingerprint {definition.fingerprint}"
    kept = () if state is None else (_heading(f"kept for {state.of}"), _state(state), "")
    return Group(
        Text.assemble((definition.name, "bold"), (f"  {inputs_text(definition)}  {identity}", "dim")),
        Text.assemble("folded by ", (plan.engine.engine.value, "bold"), (f"  {plan.engine.why}", "dim")),
        "",
        _heading("an epoch, stage by stage"),
        _stages(plan.kind.stages),
        "",
        *kept,
        _heading("tables"),
        _tables(plan.tables, sizes),
    )


def plan_data(plan: Plan, sizes: Sizes) -> dict[str, Any]:
    """Return a plan as JSON data. Durations are in microseconds."""
    definition, kind = plan.definition, plan.kind
    made: dict[str, Any] = {
        definition.kind_name: definition.name,
        "fingerprint": definition.fingerprint,
        "engine": plan.engine.engine.value,
        "engine_because": plan.engine.why,
        "stages": [_stage_data(one) for one in kind.stages],
        "tables": [_table_data(one, sizes) for one in plan.tables],
        "queries": [{"name": one.name, "gives": one.gives, "text": one.text} for one in kind.queries],
    }
    if kind.state is not None:
        columns = [asdict(column) for column in kind.state.columns]
        made["state"] = {"place": kind.state.place, "columns": columns, "bytes": kind.state.bytes, **kind.state.facts}
    if kind.gives:
        made["gives"] = dict(kind.gives)
    return made


def inputs_text(definition: Definition) -> str:
    """Return the names of a definition's inputs, which are logs or earlier definitions.

    >>> from tailrace.model.samples.visits import example
    >>> inputs_text(example())
    'log clicks'
    """
    when = " by arrival" if isinstance(definition.log, Arrivals) else ""
    return ", ".join(f"{'log' if one.landed else 'after'} {one.name}" for one in definition.log.parts) + when


def sql_page(query: PlannedQuery) -> Text:
    """Return one of a plan's SQL texts, formatted and highlighted, with a heading that names the text."""
    text = format_sql(query.text)
    lexed = Syntax(text, "sql", theme="ansi_dark", background_color="default").highlight(text)
    return Text("\n").join([Text(f"-- {query.name}, by {query.by.value}: {query.gives}", style="bold"), lexed])


def format_sql(sql: str, width: int = 80) -> str:
    """Break a SQL text into lines: before each clause, and at the first comma after `width` characters.

    Only white space is changed.

    >>> print(format_sql("SELECT a FROM (SELECT 1 AS a) WHERE a > 0"))
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
    r"'(?:\\.|[^'\\])*'|`(?:``|[^`])*`|\"(?:\"\"|[^\"])*\"|[()]|, "
    r"|\b(?:SELECT|FROM|WHERE|GROUP BY|FULL OUTER JOIN|CROSS JOIN|UNION ALL|WITH)\b ?|[A-Za-z_]\w*"
    r"|(?:(?!, )[^'`\"()A-Za-z_])+"
)


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _grid(*folded: bool) -> Table:
    """Create a table without borders and headings. `folded` states for each column whether its text may wrap."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for folds in folded:
        made.add_column(overflow="fold" if folds else "ellipsis", no_wrap=not folds)
    return made


def _stages(stages: Iterable[Stage]) -> Table:
    made, reasons = _grid(False, False, False, True), set[str]()
    for number, stage in enumerate(stages, 1):
        # If several stages have the same reason, the reason is shown only at the first of these stages.
        why = [] if stage.why in reasons | {""} else [Text(stage.why, style="dim")]
        reasons.add(stage.why)
        lines = Text("\n").join([*map(Text, stage.says), *why])
        done_by = Text(stage.execution.value, style=_COLOURS[stage.execution])
        made.add_row(Text(f"{number:>2}", style="dim"), Text(stage.name, style="bold"), done_by, lines)
    return made


def _state(state: KeptState) -> Group:
    made = _grid(False, False, True)
    for column in state.columns:
        made.add_row(column.name, Text(column.type, style="dim"), column.holds)
    texts = " plus texts" if any(column.bytes is None for column in state.columns) else ""
    size = f"{state.bytes} bytes{texts}" if state.bytes else ""
    says = "; ".join(filter(None, (size, state.says)))
    return Group(made, *([Text(says, style="dim")] if says else []), Text(state.place, style="dim"))


def _tables(tables: Iterable[Contract], sizes: Sizes) -> Table:
    made = _grid(False, True, True)
    for contract in tables:
        layout = f", partitioned by {', '.join(contract.partition_by)}" if contract.partition_by else ""
        size = sizes.get(contract.table)
        columns = f"{len(contract.columns)} columns"
        known = columns if size is None else f"{columns}, {size}"
        made.add_row(contract.table, Text(known, style="dim"), f"{contract.doc}{layout}")
    return made


def _stage_data(stage: Stage) -> dict[str, Any]:
    made = {"stage": stage.name, "execution": stage.execution.value, "why": stage.why, "says": list(stage.says)}
    return made | {"query": stage.query} | dict(stage.facts)


def _table_data(contract: Contract, sizes: Sizes) -> dict[str, Any]:
    size = sizes.get(contract.table)
    return {
        "table": contract.table,
        "doc": contract.doc,
        "partition_by": list(contract.partition_by),
        "columns": contract.types,
        "size": None if size is None else asdict(size),
    }
