"""`tailrace backfill`: recompute a range of event time, and merge the differences into the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import typer

from tailrace.cli.runtime.options import EngineName, settings_on
from tailrace.cli.runtime.spark_session import activity, ending_spark
from tailrace.cli.terminal.console import Output, facts, output_for
from tailrace.cli.terminal.corrections import behind_data, tell_behind
from tailrace.cli.terminal.formats import parse_instant, quantity, span, time_text
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Ranged
from tailrace.plan.loader import load_any
from tailrace.runners.jobs import BEHIND, JobOutcome
from tailrace.telemetry.observation import observe_run
from tailrace.telemetry.run_events import Subject

if TYPE_CHECKING:
    from tailrace.backfill.result import Backfilled


def backfill(
    definition: str,
    first: str,
    last: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    engine: EngineName = None,
    json: bool = False,
) -> None:
    """Compute a range of event time again from the log, beside a running stream, and merge the differences.

    A window belongs to the range that contains the window's last instant. If the recomputed result of a window equals
    the current result, the window is left unchanged. If the results differ, the current result is retracted and the
    window fires again. If a window has no records, its result is retracted. A separate run recomputes the windows that
    the stream can still change. For a moment, this run borrows the stream's lease (the right to write the tables), and
    the stream then continues from the corrected windows. A run stops without changes if a newer run covers its range
    (exit status 4).

    The backfill also recomputes the stages, maps and joins that the definition reads, before the definition itself. For
    a map or a join, the backfill recomputes the output records with an event time in the range. If the windows of a
    stage are wider than the range, the stage may lack corrections; the report then shows the command that adds the
    corrections. A computation is not recomputed, because no range of its event time can be computed separately.
    """
    pipeline = load_any(definition)
    if not pipeline.recomputable:
        raise UsageError(
            f"{pipeline.name} is a {pipeline.kind_name}, which has no windows that could be computed apart: what a "
            "key has comes of all its records before; stream it under another name, and it is folded anew from the "
            "whole log"
        )
    begin, end = parse_instant(first, "--from"), END_OF_TIME if last is None else parse_instant(last, "--to")
    if begin >= end:
        raise UsageError(
            f"the range from {time_text(begin)} to {time_text(end)} is empty: pass a --to that is after --from"
        )
    settings = settings_on(engine)
    output = output_for(settings, json=json)
    doing = f"{'comparing' if dry_run else 'computing'} {pipeline.name} from {time_text(begin)} to {time_text(end)}"
    subject = Subject("backfill", settings, tuple(one for one in chain(pipeline) if one.recomputable))
    with activity(output, doing), observe_run(subject, output.say) as observed, ending_spark():
        from tailrace.backfill.backfill import backfill_stages
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.corrections.stages_behind import stages_behind

        lake = Lake(settings, observed.tell)
        by_stage = backfill_stages(lake, cast("Ranged", pipeline), begin, end, reason=reason, dry_run=dry_run)
        behind = [] if dry_run else stages_behind(lake, pipeline)
    runs = [(stage, backfilled) for stage, own in by_stage for backfilled in own]
    if json:
        done = JobOutcome.as_data([JobOutcome.of(stage, backfilled, dry_run=dry_run) for stage, backfilled in runs])
        output.data(done | ({BEHIND: list(behind_data(definition, behind))} if behind else {}))
    else:
        for place, (stage, backfilled) in enumerate(runs):
            if place:
                output.text("")
            _show(output, stage, backfilled, dry_run=dry_run)
        if dry_run and any(not stage.windowed and run.changed + run.retracted for stage, run in runs[:-1]):
            output.say("stages that read it are compared with its rows as they stand: they may change further")
        tell_behind(output, definition, behind)
    if any(backfilled.gave_way is not None for _, backfilled in runs):
        raise typer.Exit(ExitStatus.GAVE_WAY)


def _show(output: Output, pipeline: Ranged, backfilled: Backfilled, *, dry_run: bool) -> None:
    run, other = backfilled.run, backfilled.gave_way
    if other is not None:
        output.say(
            f"gave way: run {other.run} of generation {other.generation} covers windows from "
            f"{time_text(other.first)} to {time_text(other.last)}, and this one is of generation "
            f"{run.generation}; nothing was changed"
        )
    would = "would be " if dry_run else ""
    kind, again, range_ = ("window", "fired", "windows") if pipeline.windowed else ("row", "given", "event times")
    rows = [
        (pipeline.kind_name, pipeline.name),
        (range_, f"from {time_text(run.first)} to {time_text(run.last)}"),
        ("log", f"up to epoch {run.log_epoch}"),
    ]
    if not dry_run:
        rows.append(("run", f"{run.run}, generation {run.generation}, {run.status.replace('_', ' ')}"))
    if other is None:
        rows += [
            ("changed", f"{quantity(backfilled.changed, kind)} {would}{again} anew"),
            ("untouched", f"{quantity(backfilled.untouched, kind)} came out equal"),
            ("retracted", f"{quantity(backfilled.retracted, kind)} {would}taken back for good"),
        ]
    rows += [("engine", str(backfilled.engine)), ("took", span(backfilled.seconds))]
    output.text(facts(rows))
