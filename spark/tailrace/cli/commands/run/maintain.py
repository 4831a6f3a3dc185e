"""`tailrace maintain`: keep the tables of a definition small and fast to read, while streams and readers continue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.runtime.spark_session import activity, ending_spark
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import quantity, span
from tailrace.model.definition.definition import Definition as Named
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.lake.upkeep.needs import Need, UpkeepPlan
    from tailrace.operate.maintenance import Maintenance, TableMaintenance


def maintain(
    definition: str,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Merge small files, apply deletes, expire old snapshots, and remove the remains of dead runs.

    Streams, backfills and readers can continue during maintenance. Before the snapshot of an epoch expires, the
    properties of the epoch's commit are archived, so that the epoch can still be replayed. The command also maintains
    the tables of the log and of earlier stages. Three settings define the ages at which the command removes data:
    TAILRACE_KEEP_SNAPSHOTS for snapshots, TAILRACE_KEEP_LEFTOVERS for the remains of dead runs, and
    TAILRACE_KEEP_ORPHANS for files that no snapshot names.
    """
    output, settings, loaded = Output(json), Settings(), load_any(definition)
    if dry_run:
        skip_unused_imports()
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.metadata.commit_times import now_milliseconds
        from tailrace.lake.upkeep.needs import plan_upkeep

        plan = plan_upkeep(Lake(settings), loaded, now_milliseconds())
        needs = {"tables": [_need_data(need) for need in plan.needs], "leftover_tables": list(plan.leftovers)}
        output.report({"definition": loaded.name, "dry_run": True, **needs}, _plan_lines(plan))
        return
    with activity(output, f"looking at the tables of {loaded.name}") as doing, ending_spark():
        from tailrace.engines.spark.session import open_session
        from tailrace.lake.catalog.lake import Lake
        from tailrace.operate.maintenance import maintain as run

        starting = partial(open_session, settings, app=f"tailrace maintain {loaded.name}")
        done = run(starting, Lake(settings), loaded, watch=lambda name: doing(f"maintaining {name}"))
    output.report(maintenance_data(loaded, done), _done_lines(done))


def _need_data(need: Need) -> dict[str, Any]:
    return {
        **fields(
            need, "table=table.name", "files", "small_files=small", "delete_files=deletes", "manifests", "snapshots"
        ),
        "expiring": len(need.going.removed),
        "leftovers": list(need.names),
    }


def _plan_lines(plan: UpkeepPlan) -> Iterator[Any]:
    columns = ("files", "small", "deletes", "manifests", "snapshots", "expire", "left over")
    rows = []
    for need in plan.needs:
        counts = (need.files, need.small, need.deletes, need.manifests, need.snapshots, len(need.going.removed))
        rows.append((need.table.name, *(f"{count:,}" for count in (*counts, len(need.names)))))
    yield table("table", *columns, rows=rows, right=columns)
    yield from (Text(f"{name}: left over by a replay that died") for name in plan.leftovers)
    yield Text("nothing was changed; files that no snapshot names are looked for when it runs", style="dim")


def maintenance_data(definition: Named, done: Maintenance) -> dict[str, Any]:
    """Return the results of a maintenance run as JSON data."""
    return {
        "definition": definition.name,
        "dry_run": False,
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
        **fields(maintained, "expired", "deleted_files=deleted", "orphan_files=orphans", "leftovers=names"),
        **fields(maintained, "overtaken", "seconds", "by_spark"),
    }


def _done_lines(done: Maintenance) -> Iterator[Any]:
    rows = ((one.table, "; ".join(_results(one)) or "as it was", span(one.seconds)) for one in done.tables)
    yield table("table", "done", "took", rows=rows, right=["took"])
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
        yield f"{quantity(done.expired, 'snapshot')} expired, {quantity(done.deleted, 'file')} deleted with them"
    if done.orphans:
        yield f"{quantity(done.orphans, 'orphan file')} deleted"
    if done.names:
        yield f"{quantity(len(done.names), 'leftover')} removed"
    for what in done.overtaken:
        yield f"{what} overtaken by other commits, for the next time"
