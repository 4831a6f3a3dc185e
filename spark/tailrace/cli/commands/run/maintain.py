"""`tailrace maintain`: keep the tables of a definition small and quick, beside whatever runs on them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.runtime.definitions import load_any
from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.runtime.spark_session import ending_spark, waiting
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import counted, span
from tailrace.model.definition.chain import Definition as Named
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.upkeep.needs import Need, Plan
    from tailrace.operate.maintenance import Maintained, Maintenance


def maintain(
    definition: Definition,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the tables need, without Spark, and change nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Write small files together, apply deletes, expire old snapshots, and remove what dead runs left behind.

    It runs beside streams, backfills and readers, and breaks none of them; what an epoch's commit said is archived
    before its snapshot expires, so that replays and catch-ups go on. The tables of the log, and of earlier stages, are
    maintained too. What is kept for how long, the settings TAILRACE_KEEP_SNAPSHOTS, TAILRACE_KEEP_LEFTOVERS and
    TAILRACE_KEEP_ORPHANS say.
    """
    output, settings, found = Output(json), Settings(), load_any(definition)
    if dry_run:
        looking()
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.upkeep.leftovers import milliseconds
        from tailrace.lake.upkeep.needs import planned

        plan = planned(Lake(settings), found, milliseconds())
        if json:
            output.data({"definition": found.name, "dry_run": True, **_plan_data(plan)})
        else:
            output.text(*_plan_shown(plan))
        return
    with waiting(output, f"looking at the tables of {found.name}") as doing, ending_spark():
        from tailrace.engines.spark.session import open_session
        from tailrace.lake.catalog.lake import Lake
        from tailrace.operate.maintenance import maintain as run

        starting = partial(open_session, settings, app=f"tailrace maintain {found.name}")
        done = run(starting, Lake(settings), found, watch=lambda name: doing(f"maintaining {name}"))
    if json:
        output.data(maintained_data(found, done))
    else:
        output.text(*_done_shown(done))


def _plan_data(plan: Plan) -> dict[str, Any]:
    return {"tables": [_need_data(one) for one in plan.needs], "leftover_tables": list(plan.leftovers)}


def _need_data(one: Need) -> dict[str, Any]:
    return {
        "table": one.table.name,
        "files": one.files,
        "small_files": one.small,
        "delete_files": one.deletes,
        "manifests": one.manifests,
        "snapshots": one.snapshots,
        "expiring": len(one.going.removed),
        "leftovers": list(one.names),
    }


def _plan_shown(plan: Plan) -> Iterator[Any]:
    columns = ("files", "small", "deletes", "manifests", "snapshots", "expire", "left over")
    rows = table("table", *columns, right=columns)
    for one in plan.needs:
        counts = (one.files, one.small, one.deletes, one.manifests, one.snapshots, len(one.going.removed))
        rows.add_row(one.table.name, *(f"{count:,}" for count in (*counts, len(one.names))))
    yield rows
    yield from (Text(f"{name}: left over by a replay that died") for name in plan.leftovers)
    yield Text("nothing was changed; files that no snapshot names are looked for when it runs", style="dim")


def maintained_data(found: Named, done: Maintenance) -> dict[str, Any]:
    """Build the JSON data of what maintenance did."""
    return {"definition": found.name, "dry_run": False, **_done_data(done)}


def _done_data(done: Maintenance) -> dict[str, Any]:
    return {"tables": [_table_data(one) for one in done.tables], "leftover_tables": list(done.dropped)}


def _table_data(one: Maintained) -> dict[str, Any]:
    rewritten = {what: {"from": taken, "to": made} for what, (taken, made) in one.rewritten.items()}
    return {
        "table": one.table,
        "rewritten": rewritten,
        "expired": one.expired,
        "deleted_files": one.deleted,
        "orphan_files": one.orphans,
        "leftovers": list(one.names),
        "overtaken": list(one.overtaken),
        "seconds": round(one.seconds, 3),
        "by_spark": list(one.by_spark),
    }


def _done_shown(done: Maintenance) -> Iterator[Any]:
    rows = table("table", "done", "took", right=["took"])
    for one in done.tables:
        rows.add_row(one.table, "; ".join(_told(one)) or "as it was", span(one.seconds))
    yield rows
    called = list(dict.fromkeys(what for one in done.tables for what in one.by_spark))
    why = f"spark: {', '.join(called)}" if called else "in the process: nothing to rewrite, expire or delete"
    yield Text(why, style="dim")
    yield from (Text(f"{name}: dropped, left over by a replay that died") for name in done.dropped)


def _told(one: Maintained) -> Iterator[str]:
    for what, (taken, made) in one.rewritten.items():
        yield f"{taken:,} {what} written to {made:,}"
    if one.expired:
        yield f"{counted(one.expired, 'snapshot')} expired, {counted(one.deleted, 'file')} deleted with them"
    if one.orphans:
        yield f"{counted(one.orphans, 'orphan file')} deleted"
    if one.names:
        yield f"{counted(len(one.names), 'leftover')} removed"
    for what in one.overtaken:
        yield f"{what} overtaken by other commits, for the next time"
