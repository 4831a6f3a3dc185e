"""`tailrace tables plan` and `tailrace tables apply`: live tables brought to their contracts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.runtime.definitions import load_any
from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.change.impact import AffectedReaders
    from tailrace.lake.change.migration import Evolution, TablePlan
    from tailrace.lake.schema.contract_diff import ContractChange

_SIGNS = {"safe": ("+", "green"), "destructive": ("!", "bold red"), "refused": ("x", "bold red")}


def plan_tables(definition: Definition, json: Json = False) -> None:
    """Show what `tables apply` would change to bring the live tables to their contracts, and whom it would hurt.

    This is about the tables' shape; what a changed definition means for the answers, `tailrace plan` says. The exit
    status is 1 where there is anything to do. Changes nothing, and starts no Spark.
    """
    output, stage, settings = Output(json), load_any(definition), Settings()
    looking()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.impact import affected_readers
    from tailrace.lake.change.migration import plan_changes

    plans = plan_changes(Lake(settings), stage)
    hurts = {
        one.contract.table: [affected_readers(one.lake, one.contract.table, each) for each in one.changes]
        for one in plans
    }
    if json:
        output.data({"tables": [_plan_data(one, hurts[one.contract.table]) for one in plans]})
    else:
        output.text(*_planned(plans, hurts))
    if any(one.changes for one in plans):
        raise typer.Exit(ExitStatus.FOUND)


def apply_tables(
    definition: Definition,
    destructive: Annotated[
        bool, typer.Option("--destructive", help="Do what hurts somebody as well; `tables plan` says whom.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring the live tables to their contracts, while streams, backfills and readers go on.

    Each table is changed in one commit of its metadata; no row is read or written. What is destructive is left alone
    without --destructive, what metadata cannot do is left in any case: then the exit status is 1. Starts no Spark.
    """
    output, stage, settings = Output(json), load_any(definition), Settings()
    looking()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.impact import affected_readers
    from tailrace.lake.change.migration import evolve

    done = evolve(Lake(settings), stage, destructive=destructive)
    hurts = {one.table: [affected_readers(one.lake, one.table, each) for each in one.left] for one in done}
    if json:
        output.data({"tables": [_done_data(one, hurts[one.table]) for one in done]})
    else:
        output.text(*_done(done, hurts))
    if any(one.left for one in done):
        raise typer.Exit(ExitStatus.FOUND)


def _planned(plans: Sequence[TablePlan], hurts: dict[str, list[AffectedReaders]]) -> Iterator[Any]:
    for plan in plans:
        if plan.changes or plan.withheld:
            yield Text(plan.contract.table, style="bold")
        if plan.withheld:
            yield Text(f"  {plan.withheld}", style="yellow")
        for change, who in zip(plan.changes, hurts[plan.contract.table], strict=True):
            yield from _change_lines(change, who)
    effects = [change.effect.value for plan in plans for change in plan.changes]
    counts = [f"{effects.count(effect)} {effect}" for effect in _SIGNS if effect in effects]
    absent = sum(not plan.made for plan in plans)
    yield ", ".join(counts) or "nothing to do: the live tables are as agreed"
    if absent:
        yield f"{absent} not made yet: who writes them first makes them by their contract"


def _done(done: Sequence[Evolution], hurts: dict[str, list[AffectedReaders]]) -> Iterator[Any]:
    for evolved in done:
        if evolved.done or evolved.left or evolved.withheld:
            yield Text(evolved.table, style="bold")
        if evolved.withheld:
            yield Text(f"  {evolved.withheld}", style="yellow")
        for change in evolved.done:
            yield Text(f"  done: {change}", style="green")
        for change, who in zip(evolved.left, hurts[evolved.table], strict=True):
            yield from _change_lines(change, who)
    changed, left = sum(len(evolved.done) for evolved in done), sum(len(evolved.left) for evolved in done)
    yield f"{changed} done" + (f", {left} left" if left else "") if changed or left else "nothing to do"


def _change_lines(change: ContractChange, who: AffectedReaders) -> Iterator[Text]:
    sign, style = _SIGNS[change.effect.value]
    needs = {"destructive": "  (needs --destructive)", "refused": "  (cannot be done)"}.get(change.effect.value, "")
    yield Text(f"  {sign} {change}{needs}", style=style)
    if change.breaks:
        yield Text(f"      {'hurts' if change.effect.value == 'destructive' else 'mind'}: {change.breaks}")
    for what, names in (("definitions", who.definitions), ("dbt models", who.models)):
        if names:
            yield Text(f"      {what} that name it: {', '.join(names)}")


def _change_data(change: ContractChange, who: AffectedReaders) -> dict[str, Any]:
    return {
        "change": str(change),
        "kind": change.kind.value,
        "column": change.name,
        "effect": change.effect.value,
        "breaks": change.breaks,
        "definitions": list(who.definitions),
        "models": list(who.models),
    }


def _plan_data(plan: TablePlan, who: Sequence[AffectedReaders]) -> dict[str, Any]:
    return {
        "table": plan.contract.table,
        "made": plan.made,
        "withheld": plan.withheld,
        "changes": [_change_data(change, each) for change, each in zip(plan.changes, who, strict=True)],
    }


def _done_data(evolved: Evolution, who: Sequence[AffectedReaders]) -> dict[str, Any]:
    return {
        "table": evolved.table,
        "withheld": evolved.withheld,
        "done": [str(change) for change in evolved.done],
        "left": [_change_data(change, each) for change, each in zip(evolved.left, who, strict=True)],
    }
