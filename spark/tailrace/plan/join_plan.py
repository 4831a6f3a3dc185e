"""Explain a join: the stages of an epoch, the SQL of what it gives, and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from tailrace.engines.choose import EngineChoice
from tailrace.lake.schema.owned_tables import contracts
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.join import Join
from tailrace.model.definition.joined_sides import SIDES
from tailrace.model.definition.source_text import length, written
from tailrace.model.logs.derived_logs import Panes
from tailrace.plan.computation_plan import page, plan_data, table_data
from tailrace.plan.plan_stages import Execution, PlannedQuery
from tailrace.plan.reading import reads
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Relation

_VIEWS = ("kept", "gone", "staying", "new")


def stages(join: Join) -> Iterator[tuple[str, Execution, str]]:
    """List the stages of an epoch in order: a stage's name, where it runs, and what it does."""
    kinds = {side: "panes of" if isinstance(join.side(side), Panes) else "log" for side in SIDES}
    logs = ", ".join(f"{kind} {join.side(side).name} {side}" for side, kind in kinds.items())
    yield "read", Execution.NATIVE, f"{logs}; the epoch is one cut over both"
    behind = f"more than {length(join.lateness)} behind" if join.lateness else "behind"
    late = f"whose window the watermark had passed{' so far' if join.lateness else ''}" if join.where else behind
    yield "judge", Execution.NATIVE, f"too late is a record {late if join.where else f'{late} the watermark before it'}"
    keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in join.keys.values())
    yield "pairs", Execution.NATIVE, f"by {keys}, {_near(join)}; each comes with its later record"
    if join.kind != "inner":
        which = "either side" if join.kind == "full" else f"the {join.kind} side"
        when = "at once" if join.unmatched == "tell" else "once none in time can come any more"
        yield "alone", Execution.NATIVE, f"records of {which} without a partner, {when}"
    if join.takes_back:
        what = ["the pairs of what a side takes back"] if join.log.takes_back else []
        what += ["a record without a partner, as it gets one"] if join.kind != "inner" else []
        yield "retract", Execution.NATIVE, f"{'; '.join(what)}: up to {length(join.trails)} behind a reader's watermark"
    yield "keep", Execution.NATIVE, f"{_kept(join)}; a restart reads them from the logs"
    hold = join.hold
    held = "" if hold == 0 else f" less {length(hold)}"
    yield "watermark", Execution.DRIVER, f"for those who read the pairs: the lesser of the logs'{held}"
    yield "ledger", Execution.NATIVE, f"to {join.name}__ledger: productions and late records, one append an epoch"


def query(join: Join) -> PlannedQuery:
    """Write the SQL of what an epoch gives, of views of the new and the kept records of each side."""
    held, gone, stay, new = ({side: Relation(f"{which}_{side}") for side in SIDES} for which in _VIEWS)
    stay = {side: stay[side] if join.side(side).takes_back else held[side] for side in SIDES}
    moved = join_rows.Moved(held, gone, stay, new)
    return PlannedQuery("pairs", "what an epoch gives, here of the first", join_rows.given(join, moved, BEGINNING, 0))


def plan_page(join: Join, engine: EngineChoice) -> RenderableType:
    """Lay out the plan as a page of text, with the engine on which a stream of the join begins."""
    return page(join, reads(join), engine, stages(join), contracts(join))


def data(join: Join, engine: EngineChoice) -> dict[str, Any]:
    """Return the plan as JSON data, with the engine on which a stream of the join begins."""
    text = query(join)
    return {
        "join": join.name,
        **plan_data(join, engine, stages(join)),
        "gives": dict(join.produced.columns),
        "sql": {text.name: text.text},
        "tables": [table_data(contract.table, contract.columns) for contract in contracts(join)],
    }


def _near(join: Join) -> str:
    if join.where is not None:
        return f"in one window of {written(join.where)}"
    before, after = map(length, join.reach)
    return f"the right record from {before} before the left one to {after} after it"


def _kept(join: Join) -> str:
    if join.where is not None:
        return "each side's records until their window is closed"
    left, right = (length(join.kept(side)) for side in SIDES)
    return f"left records for {left}, right ones for {right}, of event time"
