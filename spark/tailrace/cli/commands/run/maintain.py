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
from tailrace.model.definition.definition import Definition as Named
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.upkeep.needs import Need, UpkeepPlan
    from tailrace.operate.maintenance import Maintenance, TableMaintenance


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
    output, settings, loaded = Output(json), Settings(), load_any(definition)
    if dry_run:
        looking()
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.metadata.commit_times import now_milliseconds
        from tailrace.lake.upkeep.needs import plan_upkeep

        plan = plan_upkeep(Lake(settings), loaded, now_milliseconds())
        if json:
            output.data({"definition": loaded.name, "dry_run": True, **_plan_data(plan)})
        else:
            output.text(*_plan_lines(plan))
        return
    with waiting(output, f"looking at the tables of {loaded.name}") as doing, ending_spark():
        from tailrace.engines.spark.session import open_session
        from tailrace.lake.catalog.lake import Lake
        from tailrace.operate.maintenance import maintain as run

        starting = partial(open_session, settings, app=f"tailrace maintain {loaded.name}")
        done = run(starting, Lake(settings), loaded, watch=lambda name: doing(f"maintaining {name}"))
    if json:
        output.data(maintained_data(loaded, done))
    else:
        output.text(*_done_lines(done))


def _plan_data(plan: UpkeepPlan) -> dict[str, Any]:
    return {"tables": [_need_data(need) for need in plan.needs], "leftover_tables": list(plan.leftovers)}


def _need_data(need: Need) -> dict[str, Any]:
    return {
        "table": need.table.name,
        "files": need.files,
        "small_files": need.small,
        "delete_files": need.deletes,
        "manifests": need.manifests,
        "snapshots": need.snapshots,
        "expiring": len(need.going.removed),
        "leftovers": list(need.names),
    }


def _plan_lines(plan: UpkeepPlan) -> Iterator[Any]:
    columns = ("files", "small", "deletes", "manifests", "snapshots", "expire", "left over")
    rows = table("table", *columns, right=columns)
    for need in plan.needs:
        counts = (need.files, need.small, need.deletes, need.manifests, need.snapshots, len(need.going.removed))
        rows.add_row(need.table.name, *(f"{count:,}" for count in (*counts, len(need.names))))
    yield rows
    yield from (Text(f"{name}: left over by a replay that died") for name in plan.leftovers)
    yield Text("nothing was changed; files that no snapshot names are looked for when it runs", style="dim")


def maintained_data(definition: Named, done: Maintenance) -> dict[str, Any]:
    """Build the JSON data of a maintenance."""
    return {"definition": definition.name, "dry_run": False, **_done_data(done)}


def _done_data(done: Maintenance) -> dict[str, Any]:
    return {
        "tables": [_table_data(maintained) for maintained in done.tables],
        "leftover_tables": list(done.dropped),
        "times_mended": [one.table for one in done.times],
        "times_left": [one.table for one in done.times_left],
    }


def _table_data(maintained: TableMaintenance) -> dict[str, Any]:
    rewritten = {what: {"from": taken, "to": made} for what, (taken, made) in maintained.rewritten.items()}
    return {
        "table": maintained.table,
        "rewritten": rewritten,
        "expired": maintained.expired,
        "deleted_files": maintained.deleted,
        "orphan_files": maintained.orphans,
        "leftovers": list(maintained.names),
        "overtaken": list(maintained.overtaken),
        "seconds": round(maintained.seconds, 3),
        "by_spark": list(maintained.by_spark),
    }


def _done_lines(done: Maintenance) -> Iterator[Any]:
    rows = table("table", "done", "took", right=["took"])
    for maintained in done.tables:
        rows.add_row(maintained.table, "; ".join(_results(maintained)) or "as it was", span(maintained.seconds))
    yield rows
    called = list(dict.fromkeys(what for maintained in done.tables for what in maintained.by_spark))
    why = f"spark: {', '.join(called)}" if called else "in the process: nothing to rewrite, expire or delete"
    yield Text(why, style="dim")
    yield from (Text(f"{name}: dropped, left over by a replay that died") for name in done.dropped)
    yield from (Text(f"{one}: put right") for one in done.times)
    if done.times_left:
        from tailrace.lake.upkeep.time_mending import SERVED

        yield Text(f"{'; '.join(map(str, done.times_left))}: {SERVED}", style="red")


def _results(done: TableMaintenance) -> Iterator[str]:
    for what, (taken, made) in done.rewritten.items():
        yield f"{taken:,} {what} written to {made:,}"
    if done.expired:
        yield f"{counted(done.expired, 'snapshot')} expired, {counted(done.deleted, 'file')} deleted with them"
    if done.orphans:
        yield f"{counted(done.orphans, 'orphan file')} deleted"
    if done.names:
        yield f"{counted(len(done.names), 'leftover')} removed"
    for what in done.overtaken:
        yield f"{what} overtaken by other commits, for the next time"
