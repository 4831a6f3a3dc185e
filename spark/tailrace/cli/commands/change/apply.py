"""`tailrace apply` and `tailrace rollback`: make tables follow a changed definition, or an earlier definition again."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from tailrace.cli.runtime.interruption import Stop
from tailrace.cli.runtime.options import EngineName, settings_on
from tailrace.cli.runtime.spark_session import activity, ending_spark
from tailrace.cli.terminal.console import Output, facts, output_for
from tailrace.cli.terminal.formats import span
from tailrace.cli.terminal.stream_progress import StreamProgress
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.plan.loader import load, load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import ENGINE, fields

if TYPE_CHECKING:
    from tailrace.lake.catalog.lake import Lake
    from tailrace.operate.changeover import Changeover


def apply(
    definition: str,
    once: bool = False,
    all_stages: bool = False,
    reason: str | None = None,
    engine: EngineName = None,
    json: bool = False,
) -> None:
    """Build a generation of a changed definition from the log, beside the current generation, and switch to it.

    A stream that lands records keeps running while the generation is built. When the new generation is current, the
    stream stops folding the old definition. This command then folds the log's new epochs until a stream of the new
    definition takes over, or until a signal stops the command (exit status 130). If two `apply` commands run at once,
    the command that started later continues, and the other command stops and leaves the definition's tables unchanged
    (exit status 4). With --all-stages, all changed pipelines, maps and joins that the definition reads are built in the
    same run, and all definitions of the chain that read one of them.
    """
    loaded: Definition = load_any(definition) if all_stages else load(definition)
    settings = settings_on(engine)
    output = output_for(settings, json=json)
    with ExitStack() as shown:
        doing = shown.enter_context(activity(output, f"applying {loaded.name}"))
        with ending_spark():
            from tailrace.lake.catalog.lake import Lake
            from tailrace.operate import changeover

            lake = Lake(settings)
            if all_stages:
                done = changeover.apply_stages(lake, loaded, reason=reason, doing=doing)
            else:
                done = {loaded.name: changeover.apply(lake, load(definition), reason=reason, doing=doing)}
            shown.close()
            for name, applied in done.items():
                kind = next(one.kind_name for one in chain(loaded) if one.name == name)
                _show(output, name, applied, kind)
            if any(applied.gave_way is not None for applied in done.values()):
                raise typer.Exit(ExitStatus.GAVE_WAY)
            if not once and any(applied.run is not None for applied in done.values()):
                _fold_on(output, lake, loaded)


def _fold_on(output: Output, lake: Lake, pipeline: Definition) -> None:
    """Fold the log's new epochs until a stream of the changed definition takes over.

    Raises `typer.Exit` if a signal stops the work.
    """
    from tailrace.engines.spark.session import open_session
    from tailrace.lake.schema.lake_errors import FencedError
    from tailrace.stream.log_stream import Tailing

    starting = partial(open_session, lake.settings, app=f"tailrace apply {pipeline.name}")
    output.say("folding what the log gets, until a stream of the changed definition takes over (Ctrl-C to stop)")
    progress = StreamProgress(output, unit="record")
    with Stop() as stop:
        try:
            tailing = Tailing(starting, lake, [pipeline], watch=progress.show_epoch)
            progress.begin()
            tailing.run(stop=lambda: bool(stop))
            progress.show_activity("bringing the answers up with the ledger")
            tailing.close()
        except FencedError:
            output.say(f"a stream folds {pipeline.name} now: this one ends")
            return
        finally:
            progress.close()
    raise typer.Exit(ExitStatus.INTERRUPTED)


def rollback(
    definition: str,
    to: int | None = None,
    reason: str | None = None,
    json: bool = False,
) -> None:
    """Go back to an earlier generation of a definition, with its columns and its rows; nothing is computed.

    The next stream of the earlier definition continues after the last epoch of the earlier generation: it folds all
    later epochs from the log.
    """
    pipeline, settings = load(definition), Settings()
    output = output_for(settings, json=json)
    from tailrace.lake.catalog.lake import Lake
    from tailrace.operate.changeover import rollback as run

    applied = run(Lake(settings), pipeline, to, reason=reason)
    _show(output, pipeline.name, applied, pipeline.kind_name)


def _show(output: Output, name: str, applied: Changeover, kind: str) -> None:
    run = applied.run
    if output.json:
        output.data(_data(name, applied), line=True)
        return
    if run is None:
        output.text(f"nothing to do: {name} means what its tables hold, generation {applied.left}")
        return
    if applied.gave_way is not None:
        output.say(f"gave way: run {applied.gave_way.run} of generation {applied.gave_way.generation} began meanwhile")
    rows = [
        (kind, name),
        ("run", f"{run.run}, {run.kind}, generation {run.generation}, {run.status.replace('_', ' ')}"),
    ]
    if applied.gave_way is None:
        rows += [
            ("took over from", f"generation {applied.left}, at epoch {applied.epoch}"),
            ("lease borrowed", f"for {span(applied.lent)}"),
        ]
    if applied.engine is not None:
        rows.append(("engine", str(applied.engine)))
    rows.append(("took", span(applied.seconds)))
    output.text(facts(rows))


def _data(name: str, applied: Changeover) -> dict[str, Any]:
    run, other = applied.run, applied.gave_way
    return {
        "event": "applied",
        "pipeline": name,
        **fields(run, "run", "kind"),
        "status": run.status if run else "unchanged",
        "generation": run.generation if run else applied.left,
        "left": applied.left if run and other is None else None,
        **fields(applied, "epoch", "seconds", "lent_seconds=lent", *ENGINE),
        "gave_way_to": fields(other, "run", "generation") if other else None,
    }
