"""`tailrace status`: how far a pipeline is, what it holds and which runs computed what."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.runtime.definitions import load_any
from tailrace.cli.runtime.options import Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.corrections import behind_data, tell_behind
from tailrace.cli.terminal.formats import bounds, counted, span, time_text
from tailrace.lake.catalog.events import unread_files
from tailrace.model.base.clock import ahead
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, text
from tailrace.model.definition.chain import Ranged, Windowless
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.log import log_names
from tailrace.model.windows.windows import Window
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.catalog.run import Run
    from tailrace.lake.read.pipeline_status import LogStatus, PipelineStatus
    from tailrace.model.step.progress import Progress

HOLDING = 3
"""The maximum number of partitions that are named as holding the watermark back."""

RUNS = 10
"""The maximum number of runs that are shown to people; JSON has them all."""


def status(
    definition: Annotated[
        str | None,
        typer.Argument(metavar="DEFINITION", help="A Python file with a Pipeline; without one, all of the lake."),
    ] = None,
    json: Json = False,
) -> None:
    """Show how a definition stands: watermark and lag, epochs, open windows, counts, and which run computed what.

    Of a computation it shows the keys and their pending timers. Without a definition it lists every log and pipeline of
    the lake. Reads the tables, without Spark.
    """
    output, settings = Output(json), Settings()
    pipeline = load_any(definition) if definition is not None else None
    looking()
    if isinstance(pipeline, Computation):
        _computation(output, settings, pipeline, str(definition))
        return
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.corrections.stages_behind import stages_behind
    from tailrace.lake.read.pipeline_status import overview
    from tailrace.lake.read.pipeline_status import status as report

    lake = Lake(settings)
    if pipeline is None:
        logs, pipelines = overview(lake)
        if json:
            output.data({"logs": [_log_data(log) for log in logs], "pipelines": [_data(one) for one in pipelines]})
        else:
            output.text(*_overview(settings, logs, pipelines))
        return
    state = report(lake, pipeline)
    behind = [] if state.pipeline is None else stages_behind(lake, pipeline)
    if json:
        own = _data(state.pipeline, state.logs, pipeline) if state.pipeline else {"pipeline": pipeline.name}
        of_logs = [_log_data(log) for log in state.logs]
        lacks = {"behind": list(behind_data(str(definition), behind))}
        output.data({**own, "started": state.pipeline is not None, "logs": of_logs, **lacks})
        return
    output.text(
        Text.assemble(
            (pipeline.name, "bold"), (f"  log {log_names(pipeline.sources)}  lake {settings.warehouse}", "dim")
        )
    )
    if state.pipeline is None or not state.logs:
        output.whole(f"no stream has run yet: tailrace stream {definition} --from DIR")
        return
    output.text(facts(_facts(pipeline, state.pipeline, state.logs)))
    if state.pipeline.runs:
        output.text("", *_runs(state.pipeline.runs))
    tell_behind(output, str(definition), behind)


def _computation(output: Output, settings: Settings, computation: Computation, definition: str) -> None:
    from dataclasses import asdict

    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.corrections.stages_behind import stages_behind
    from tailrace.lake.read.computation_status import computation_status

    lake = Lake(settings)
    state = computation_status(lake, computation)
    behind = [] if state is None else stages_behind(lake, computation)
    if output.json:
        own = {"computation": computation.name} if state is None else asdict(state)
        instants = ("watermark", "onward", "processing_time", "next")
        times = {} if state is None else {name: _text(getattr(state, name)) for name in instants}
        logs = [] if state is None else [_log_data(log) for log in state.logs]
        lacks = {"behind": list(behind_data(definition, behind))}
        output.data({**own, **times, "started": state is not None, "logs": logs, **lacks})
        return
    where = f"  log {log_names(computation.sources)}  lake {settings.warehouse}"
    output.text(Text.assemble((computation.name, "bold"), (where, "dim")))
    if state is None or not state.logs:
        output.whole(f"no stream has run yet: tailrace stream {definition} --from DIR")
        return
    rows: list[tuple[str, Text | str]] = []
    if not state.same_definition:
        warning = "the ledger has what a definition with another meaning made: it needs another name"
        rows.append(("definition", Text(warning, style="bold red")))
    productions = f"{state.productions:,}" if computation.productions == "strong" else "not kept"
    rows += [
        ("watermark", _dimmed(time_text(state.watermark), f"for those who read it {time_text(state.onward)}")),
        ("last epoch", f"log {_epoch(min(log.epoch for log in state.logs))}, ledger {_epoch(state.epoch)}"),
        *_logs(state.logs),
        ("keys", f"{state.keys:,}"),
        ("timers", _dimmed(f"{state.timers:,}", f"the next in event time at {time_text(state.next)}")),
        ("productions", productions),
        *([] if computation.once is None else [("another's", f"{state.claimed:,}")]),
        *([] if state.in_flight is None else [("in flight", f"{counted(state.in_flight, 'record')} on the loop")]),
        ("late records", f"{state.late:,}"),
        ("rejected", f"{state.rejected:,}"),
        *([] if state.engine is None else [("engine", _dimmed(*_engine(state.engine)))]),
        ("fingerprint", computation.fingerprint),
    ]
    output.text(facts(rows))
    tell_behind(output, definition, behind)


def _facts(pipeline: Ranged, own: PipelineStatus, logs: Sequence[LogStatus]) -> Iterator[tuple[str, Text | str]]:
    if not own.same_definition:
        warning = "the tables hold the results of a definition with another meaning: it needs another name"
        yield "definition", Text(warning, style="bold red")
    over = ahead(own.watermark, own.processing_time)
    lags = [
        f"{span(lag / 1e6)} behind {what}" for what, lag in _lags(own, logs).items() if lag is not None and not over
    ]
    yield "watermark", _dimmed(time_text(own.watermark), ", ".join(lags))
    if over:
        warning = (
            f"the watermark is {span(over / 1e6)} ahead of the last epoch's clock: what is before it comes too late"
        )
        yield "ahead", Text(warning, style="bold red")
    for log in logs:
        if log.progress is not None and len(log.progress.partitions) > 1:
            yield "held back by", _holding(log.progress)
    epochs = f"log {_epoch(min(log.epoch for log in logs))}, ledger {_epoch(own.epoch)}"
    epochs += "" if own.answers is None else f", answers {_epoch(own.answers_epoch)}"
    yield (
        "last epoch",
        _dimmed(
            epochs,
            f"committed {_second(own.committed)}, {_ago(own.committed)}",
        ),
    )
    yield from _logs(logs)
    if own.open is not None:
        ends = f"ending {time_text(own.open.oldest)} to {time_text(own.open.newest)}" if own.open.count else ""
        yield "open windows", _dimmed(f"{own.open.count:,}", ends)
    if isinstance(pipeline, Windowless):
        yield "rows", _dimmed(f"{own.productions:,}", "retractions included")
    else:
        yield "answers", _answers(own)
        if own.unanswered:
            yield "unanswered", _dimmed(f"{own.unanswered:,}", own.unanswered_why or "")
        yield "panes", _dimmed(f"{own.panes:,}", "retractions included")
        yield "late records", f"{own.late:,}"
    if own.rejected:
        yield "rejected", _dimmed(f"{own.rejected:,}", _reasons(own))
    yield "generation", _dimmed(f"{own.generation}", f"the stream's lease has token {own.token}")
    if own.engine is not None:
        yield "engine", _dimmed(*_engine(own.engine))
    yield "fingerprint", pipeline.fingerprint


def _reasons(own: PipelineStatus) -> str:
    """Write why the definition rejected records, with how many there are where reasons differ."""
    if len(own.reasons) == 1:
        return next(iter(own.reasons))
    return "; ".join(f"{number:,} times {reason}" for reason, number in own.reasons.items())


def _answers(own: PipelineStatus) -> Text:
    """Write how many answers there are, and how far they are behind the ledger."""
    if own.answers is None:
        return _dimmed("in the ledger alone", "a later stage reads them; answers=True makes a table of them")
    behind = own.epoch - own.answers_epoch
    follow = f"{counted(behind, 'epoch')} behind the ledger" if behind else "up with the ledger"
    if own.rewritten:
        follow += f"; the last change of them wrote {own.rewritten:,} anew"
    return _dimmed(f"{own.answers:,}", follow)


def _engine(recorded: str) -> tuple[str, str]:
    """Split what is said of an engine into its name, and why it was taken."""
    name, _, why = recorded.partition(": ")
    return name, why


def _holding(progress: Progress) -> Text:
    """Name the partitions that hold the watermark back, and count the idle ones, which nothing waits for."""
    names = list(progress.behind[:HOLDING])
    more = len(progress.behind) - len(names)
    idle = len(progress.partitions) - len(progress.holding)
    holding = ", ".join([*names, *([f"{more} more"] if more else [])]) or "none: all partitions are idle"
    return _dimmed(holding, f"of {len(progress.partitions)} partitions, {idle} idle: tailrace watermark shows each")


def _runs(runs: tuple[Run, ...]) -> Iterator[Text]:
    """Write the last runs, two lines each: how a run ended, then its range, engine and reason."""
    yield Text("runs", style="bold")
    for run in runs[-RUNS:]:
        style = {"failed": "red", "gave_way": "yellow"}.get(run.status, "")
        counts = {"changed": run.changed, "untouched": run.untouched, "retracted": run.retracted}
        ended = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count is not None)
        head = f"{run.generation:>3}  {run.run}  {run.kind:<8}  "
        yield Text.assemble(head, (f"{run.status:<9}", style), f"  {ended}" if ended else "")
        by = f"by {_engine(run.engine)[0]}" if run.engine else None
        more = ", ".join(filter(None, (by, run.reason)))
        yield Text.assemble(f"     {bounds(Window(run.first, run.last))}", (f"  {more}" if more else "", "dim"))
    if len(runs) > RUNS:
        yield Text(f"the last {RUNS} of {len(runs)}; --json shows all", style="dim italic")


def _logs(logs: Sequence[LogStatus]) -> Iterator[tuple[str, Text | str]]:
    """Yield a line for each log: its records, and where there are several its watermark, and whether it holds back."""
    holding = [log for log in logs if log.progress is not None and not log.progress.all_idle]
    least = min((log.progress.watermark for log in holding if log.progress is not None), default=None)
    for log in logs:
        latest = f"latest event {time_text(log.latest)}" if log.latest is not None else ""
        again = f", {counted(log.duplicates, 'duplicate')}" if log.duplicates else ""
        records = f"{counted(log.records, 'record')}, {log.rejected:,} rejected{again}{unread_files(log.unread)}"
        if len(logs) == 1:
            yield "log", _dimmed(records, latest)
        elif log.progress is None:
            yield f"log {log.log}", _dimmed(records, "no epoch yet")
        else:
            part = "idle" if log.progress.all_idle else "holds back" if log.progress.watermark == least else ""
            at = f"watermark {time_text(log.progress.watermark)}"
            yield f"log {log.log}", _dimmed(records, ", ".join(filter(None, (latest, at, part))))
        yield from _near_names(log)


def _near_names(log: LogStatus) -> Iterator[tuple[str, Text | str]]:
    """Yield a line for each field that is dropped, where records lack a column of nearly the same name."""
    for name, column in log.near_names.items():
        said = f"field {name!r} of log {log.log} is dropped, and column {column!r} is missing: name them alike"
        yield "dropped", Text(said, style="bold red")


def _overview(settings: Settings, logs: list[LogStatus], pipelines: list[PipelineStatus]) -> Iterator[Any]:
    yield Text(f"lake {settings.warehouse}  namespace {settings.namespace}", style="dim")
    if not logs:
        yield "nothing in it yet: tailrace stream DEFINITION --from DIR"
        return
    of_logs = table(
        "log",
        "last epoch",
        "records",
        "rejected",
        "committed",
        right=("last epoch", "records", "rejected"),
        whole=("log",),
    )
    for log in logs:
        of_logs.add_row(
            log.log,
            _epoch(log.epoch),
            f"{log.records:,}",
            f"{log.rejected:,}",
            f"{_second(log.committed)}, {_ago(log.committed)}",
        )
    numbers = ("last epoch", "answers at", "answers", "panes", "late", "gen")
    of_pipelines = table("pipeline", "watermark", *numbers, right=numbers, whole=("pipeline", "watermark"))
    for one in pipelines:
        counts = (f"{number:,}" for number in (one.panes, one.late, one.generation))
        answers = ("-", "-") if one.answers is None else (_epoch(one.answers_epoch), f"{one.answers:,}")
        of_pipelines.add_row(one.pipeline, time_text(one.watermark), _epoch(one.epoch), *answers, *counts)
    yield of_logs
    yield ""
    yield of_pipelines


def _dimmed(first: str, then: str) -> Text:
    return Text.assemble(first, ("  " + then if then else "", "dim"))


def _epoch(number: int) -> str:
    return "none" if number < 0 else f"{number:,}"


def _second(micros: int | None) -> str:
    return time_text(None if micros is None else micros - micros % 1_000_000)


def _ago(micros: int | None) -> str:
    return "never" if micros is None else f"{span(max(0.0, time.time() - micros / 1e6))} ago"


def _lags(own: PipelineStatus, logs: Sequence[LogStatus]) -> dict[str, int | None]:
    """Return how far the watermark is behind processing time and the latest event, in microseconds."""
    if not BEGINNING < own.watermark < END_OF_TIME:
        return {}
    return {
        "processing time": None if own.processing_time is None else own.processing_time - own.watermark,
        "its latest event": None if (latest := _latest(logs)) is None else latest - own.watermark,
    }


def _latest(logs: Sequence[LogStatus]) -> int | None:
    return max((log.latest for log in logs if log.latest is not None), default=None)


def _log_data(log: LogStatus) -> dict[str, Any]:
    return {
        "log": log.log,
        "epoch": log.epoch,
        "records": log.records,
        "rejected": log.rejected,
        "duplicates": log.duplicates,
        "unread_files": dict(log.unread),
        "near_names": dict(log.near_names),
        "latest_event": _text(log.latest),
        "committed": _text(log.committed),
        "held_by": list(log.progress.behind) if log.progress is not None else [],
        "watermark": _text(None if log.progress is None else log.progress.watermark),
        "idle": log.progress is not None and log.progress.all_idle,
    }


def _data(own: PipelineStatus, logs: Sequence[LogStatus] = (), pipeline: Ranged | None = None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "pipeline": own.pipeline,
        "watermark": text(own.watermark),
        "processing_time": _text(own.processing_time),
        "epoch": own.epoch,
        "answers_epoch": own.answers_epoch,
        "rewritten": own.rewritten,
        "generation": own.generation,
        "token": own.token,
        "engine": own.engine,
        "committed": _text(own.committed),
        "answers": own.answers,
        "unanswered": own.unanswered,
        "unanswered_why": own.unanswered_why,
        "panes": own.panes,
        "late": own.late,
        "rejected": own.rejected,
        "reasons": dict(own.reasons),
        "productions": own.productions,
    }
    if pipeline is None or not logs:
        return data
    lags = _lags(own, logs)
    seconds = {name: None if lag is None else lag / 1e6 for name, lag in lags.items()}
    return data | {
        "fingerprint": pipeline.fingerprint,
        "same_definition": own.same_definition,
        "lag_seconds": {
            "behind_processing_time": seconds.get("processing time"),
            "behind_latest_event": seconds.get("its latest event"),
        },
        "ahead_seconds": ahead(own.watermark, own.processing_time) / 1e6,
        "open_windows": None
        if own.open is None
        else {
            "count": own.open.count,
            "oldest_end": _text(own.open.oldest),
            "newest_end": _text(own.open.newest),
        },
        "runs": [_run_data(run) for run in own.runs],
    }


def _run_data(run: Run) -> dict[str, Any]:
    return {
        "run": run.run,
        "kind": run.kind,
        "status": run.status,
        "generation": run.generation,
        "range": [text(run.first), text(run.last)],
        "fingerprint": run.fingerprint,
        "log_epoch": run.log_epoch,
        "changed": run.changed,
        "untouched": run.untouched,
        "retracted": run.retracted,
        "reason": run.reason,
        "engine": run.engine,
        "at": _text(instant(run.at)) if run.at else None,
    }


def _text(micros: int | None) -> str | None:
    return None if micros is None else text(micros)
