"""`tailrace tables plan` and `tailrace tables apply`: change the live tables to match their contracts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import typer
from rich.text import Text

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.impact import AffectedReaders
    from tailrace.lake.change.migration import Evolution, TablePlan
    from tailrace.lake.schema.contract_diff import ContractChange

Changes: TypeAlias = "Sequence[tuple[ContractChange, AffectedReaders]]"
"""The contract changes of one table; each change is paired with the readers that the change affects."""

_SIGNS = {"safe": ("+", "green"), "destructive": ("!", "bold red"), "refused": ("x", "bold red")}


def plan_tables(definition: str, json: bool = False) -> None:
    """Show the changes that `tables apply` would make to match the contracts, and the readers that they would break.

    This command compares the columns and properties of the live tables with the contracts. To see how a changed
    definition affects the answers, use `tailrace plan`. The exit status is 1 if there is a change to make. Changes
    nothing, and starts no Spark.
    """
    output, stage, settings = Output(json), load_any(definition), Settings()
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.migration import plan_changes

    plans = [(one, _affected(one.lake, one.contract.table, one.changes)) for one in plan_changes(Lake(settings), stage)]
    data = [
        {**fields(plan, "table=contract.table", "made", "withheld"), "changes": _data(changes)}
        for plan, changes in plans
    ]
    output.report({"tables": data}, _plan_lines(plans))
    if any(changes for _, changes in plans):
        raise typer.Exit(ExitStatus.FOUND)


def apply_tables(
    definition: str,
    destructive: bool = False,
    json: bool = False,
) -> None:
    """Change the live tables to match their contracts, while streams, backfills and readers go on.

    Each table is changed by one commit to its metadata; no row is read or written. Destructive changes are made only
    with --destructive. A change that would require rewriting rows is never made. The exit status is 1 if a change
    remains to be made. Starts no Spark.
    """
    output, stage, settings = Output(json), load_any(definition), Settings()
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.migration import evolve

    evolutions = evolve(Lake(settings), stage, destructive=destructive)
    left = [(one, _affected(one.lake, one.table, one.left)) for one in evolutions]
    data = [
        {**fields(one, "table", "withheld"), "done": [str(change) for change in one.done], "left": _data(changes)}
        for one, changes in left
    ]
    output.report({"tables": data}, _evolution_lines(left))
    if any(changes for _, changes in left):
        raise typer.Exit(ExitStatus.FOUND)


def _affected(lake: Lake, table: str, changes: Iterable[ContractChange]) -> Changes:
    from tailrace.lake.change.impact import affected_readers

    return [(change, affected_readers(lake, table, change)) for change in changes]


def _plan_lines(plans: Sequence[tuple[TablePlan, Changes]]) -> Iterator[Any]:
    for plan, changes in plans:
        yield from _table_lines(plan.contract.table, plan.withheld, (), changes)
    effects = [change.effect.value for _, changes in plans for change, _ in changes]
    counts = [f"{effects.count(effect)} {effect}" for effect in _SIGNS if effect in effects]
    absent = sum(not plan.made for plan, _ in plans)
    yield ", ".join(counts) or "nothing to do: the live tables are as agreed"
    if absent:
        yield f"{absent} not made yet: who writes them first makes them by their contract"


def _evolution_lines(evolutions: Sequence[tuple[Evolution, Changes]]) -> Iterator[Any]:
    for evolution, left in evolutions:
        yield from _table_lines(evolution.table, evolution.withheld, evolution.done, left)
    done, left_alone = sum(len(one.done) for one, _ in evolutions), sum(len(left) for _, left in evolutions)
    yield f"{done} done" + (f", {left_alone} left" if left_alone else "") if done or left_alone else "nothing to do"


def _table_lines(table: str, withheld: str, done: Sequence[ContractChange], changes: Changes) -> Iterator[Text]:
    """Yield report lines on a table's changes: first the changes made, then the planned or remaining changes."""
    if done or changes or withheld:
        yield Text(table, style="bold")
    if withheld:
        yield Text(f"  {withheld}", style="yellow")
    for change in done:
        yield Text(f"  done: {change}", style="green")
    for change, readers in changes:
        sign, style = _SIGNS[change.effect.value]
        needs = {"destructive": "  (needs --destructive)", "refused": "  (cannot be done)"}.get(change.effect.value, "")
        yield Text(f"  {sign} {change}{needs}", style=style)
        if change.breaks:
            yield Text(f"      {'hurts' if change.effect.value == 'destructive' else 'mind'}: {change.breaks}")
        for what, names in (("definitions", readers.definitions), ("dbt models", readers.models)):
            if names:
                yield Text(f"      {what} that name it: {', '.join(names)}")


def _data(changes: Changes) -> list[dict[str, Any]]:
    return [
        {
            "change": str(change),
            **fields(change, "kind", "column=name", "effect", "breaks"),
            **fields(readers, "definitions", "models"),
        }
        for change, readers in changes
    ]
