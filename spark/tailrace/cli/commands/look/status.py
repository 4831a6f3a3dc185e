"""`tailrace status`: show the progress of a definition, its state, and the runs that computed its results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.corrections import behind_data, tell_behind
from tailrace.cli.terminal.formats import bounds, not_streamed, quantity, span, time_text
from tailrace.lake.catalog.events import unread_files
from tailrace.model.base.clock import behind
from tailrace.model.base.time import BEGINNING, text
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import log_names
from tailrace.model.windows.windows import Window
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.lake.catalog.run import Run
    from tailrace.lake.read.status import KeptKeys, LogStatus, Status
    from tailrace.model.step.progress import Progress

HOLDING = 3
"""The maximum number of partitions that the report names as holding the watermark back."""

RUNS = 10
"""The maximum number of runs in the printed report; JSON output has all runs."""


def status(
    definition: str | None = None,
    json: bool = False,
) -> None:
    """Show the status of a definition: watermark and lag, epochs, open windows, counts, and runs.

    For a computation, the report includes its keys and their pending timers. Without a definition, the command lists
    every log and pipeline of the lake. Reads the tables, without Spark.
    """
    output, settings = Output(json), Settings()
    loaded = load_any(definition) if definition is not None else None
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.corrections.stages_behind import stages_behind
    from tailrace.lake.read import status as read

    lake = Lake(settings)
    if loaded is None:
        logs, ledgers = read.overview(lake)
        data = {"logs": [_log_data(log) for log in logs], "pipelines": [_data(one) for one in ledgers]}
        output.report(data, _overview(settings, logs, ledgers))
        return
    state = read.status(lake, loaded)
    lacking = [] if state.own is None else stages_behind(lake, loaded)
    if json:
        own = {} if state.own is None else _data(state.own) | _definition_data(loaded, state.own, state.logs)
        named = {"pipeline": loaded.name, loaded.kind_name: loaded.name}
        of_logs = [_log_data(log) for log in state.logs]
        lacks = {"behind": list(behind_data(str(definition), lacking))}
        output.data({**own, **named, "started": state.own is not None, "logs": of_logs, **lacks})
        return
    where = f"  log {log_names(loaded.sources)}  lake {settings.warehouse}"
    output.text(Text.assemble((loaded.name, "bold"), (where, "dim")))
    if state.own is None or not state.logs:
        output.verbatim(not_streamed(settings, str(definition)))
        return
    output.text(facts(_facts(loaded, state.own, state.logs)))
    if state.own.runs:
        output.text("", *_runs(state.own.runs))
    tell_behind(output, str(definition), lacking)


def _facts(definition: Definition, own: Status, logs: Sequence[LogStatus]) -> Iterator[tuple[str, Text | str]]:
    if not own.same_definition:
        warning = "the tables hold the results of a definition with another meaning: it needs another name"
        yield "definition", Text(warning, style="bold red")
    over, latest = own.ahead, _latest(logs)
    lags = {"processing time": own.lag, "its latest event": behind(own.watermark, latest)}
    said = [f"{span(lag / 1e6)} behind {what}" for what, lag in lags.items() if lag is not None and not over]
    if own.onward not in (BEGINNING, own.watermark):
        said.append(f"readers get {time_text(own.onward)}")
    yield "watermark", _dimmed(time_text(own.watermark), ", ".join(said))
    if over:
        warning = f"the watermark is {span(over / 1e6)} ahead of the last epoch's clock: earlier records come too late"
        yield "ahead", Text(warning, style="bold red")
    for log in logs:
        if log.progress is not None and len(log.progress.partitions) > 1:
            yield "held back by", _holding(log.progress)
    epochs = f"log {_epoch(min(log.epoch for log in logs))}, ledger {_epoch(own.epoch)}"
    epochs += "" if own.answers is None else f", answers {_epoch(own.answers_epoch)}"
    yield "last epoch", _dimmed(epochs, f"committed {_second(own.committed)}, {_ago(own.committed)}")
    yield from _logs(logs)
    if own.windows is not None:
        ends = f"ending {time_text(own.windows.oldest)} to {time_text(own.windows.newest)}"
        yield "open windows", _dimmed(f"{own.windows.count:,}", ends if own.windows.count else "")
    if own.keys is not None:
        yield from _keys(own, own.keys)
    elif definition.windowed:
        yield from _answers(own)
        yield "panes", _dimmed(f"{own.panes:,}", "retractions included")
        yield "late records", f"{own.late:,}"
    else:
        yield "rows", _dimmed(f"{own.productions:,}", "retractions included")
    if own.rejected:
        yield "rejected", _dimmed(f"{own.rejected:,}", _reasons(own))
    yield "generation", _dimmed(f"{own.generation}", f"the stream's lease has token {own.token}")
    if own.engine is not None:
        yield "engine", _dimmed(*own.engine_named)
    yield "fingerprint", definition.fingerprint


def _keys(own: Status, keys: KeptKeys) -> Iterator[tuple[str, Text | str]]:
    """Yield report lines with a computation's numbers of keys, timers, productions and late records."""
    yield "keys", f"{keys.count:,}"
    yield "timers", _dimmed(f"{keys.timers:,}", f"the next in event time at {time_text(keys.next)}")
    yield "productions", f"{own.productions:,}" if keys.strong else "not kept"
    if own.claimed:
        yield "another's", f"{own.claimed:,}"
    if keys.in_flight is not None:
        yield "in flight", f"{quantity(keys.in_flight, 'record')} on the loop"
    yield "late records", f"{own.late:,}"


def _reasons(own: Status) -> str:
    """Return the reasons for which the definition rejected records.

    If there are several reasons, the text states the number of rejected records for each reason.
    """
    if len(own.reasons) == 1:
        return next(iter(own.reasons))
    return "; ".join(f"{number:,} times {reason}" for reason, number in own.reasons.items())


def _answers(own: Status) -> Iterator[tuple[str, Text | str]]:
    """Yield report lines on the answers.

    The lines show the number of answers, how many epochs the answers are behind the ledger, and the number of answers
    with a null result.
    """
    answers = own.answers
    if answers is None:
        yield "answers", _dimmed("in the ledger alone", "a later stage reads them; answers=True makes a table of them")
        return
    over = own.answers_behind
    follow = f"{quantity(over, 'epoch')} behind the ledger" if over else "up with the ledger"
    if answers.rewritten:
        follow += f"; the last change of them wrote {answers.rewritten:,} anew"
    yield "answers", _dimmed(f"{answers.count:,}", follow)
    if answers.unanswered:
        yield "unanswered", _dimmed(f"{answers.unanswered:,}", answers.unanswered_why or "")


def _holding(progress: Progress) -> Text:
    """Return a text that names the partitions that hold the watermark back, and states how many partitions are idle."""
    names = list(progress.behind[:HOLDING])
    more = len(progress.behind) - len(names)
    idle = len(progress.partitions) - len(progress.holding)
    holding = ", ".join([*names, *([f"{more} more"] if more else [])]) or "none: all partitions are idle"
    return _dimmed(holding, f"of {len(progress.partitions)} partitions, {idle} idle: tailrace watermark shows each")


def _runs(runs: tuple[Run, ...]) -> Iterator[Text]:
    """Yield two report lines for each of the last `RUNS` runs.

    The first line has the run's outcome; the second line has the run's range, engine and reason.
    """
    yield Text("runs", style="bold")
    for run in runs[-RUNS:]:
        style = {"failed": "red", "gave_way": "yellow"}.get(run.status, "")
        counts = {"changed": run.changed, "untouched": run.untouched, "retracted": run.retracted}
        ended = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count is not None)
        head = f"{run.generation:>3}  {run.run}  {run.kind:<8}  "
        yield Text.assemble(head, (f"{run.status:<9}", style), f"  {ended}" if ended else "")
        by = f"by {run.engine.partition(': ')[0]}" if run.engine else None
        more = ", ".join(filter(None, (by, run.reason)))
        yield Text.assemble(f"     {bounds(Window(run.first, run.last))}", (f"  {more}" if more else "", "dim"))
    if len(runs) > RUNS:
        yield Text(f"the last {RUNS} of {len(runs)}; --json shows all", style="dim italic")


def _logs(logs: Sequence[LogStatus]) -> Iterator[tuple[str, Text | str]]:
    """Yield a report line for each log, with the number of records that the log contains.

    If there are several logs, each line also has the log's watermark, and says whether the log holds back the
    definition's watermark.
    """
    holding = [log for log in logs if log.progress is not None and not log.progress.all_idle]
    least = min((log.progress.watermark for log in holding if log.progress is not None), default=None)
    for log in logs:
        latest = f"latest event {time_text(log.latest)}" if log.latest is not None else ""
        again = f", {quantity(log.duplicates, 'duplicate')}" if log.duplicates else ""
        again += f", {quantity(log.rounded, 'rounded value')}" if log.rounded else ""
        records = f"{quantity(log.records, 'record')}, {log.rejected:,} rejected{again}{unread_files(log.unread)}"
        if len(logs) == 1:
            yield "log", _dimmed(records, latest)
        elif log.progress is None:
            yield f"log {log.log}", _dimmed(records, "no epoch yet")
        else:
            part = "idle" if log.progress.all_idle else "holds back" if log.progress.watermark == least else ""
            at = f"watermark {time_text(log.progress.watermark)}"
            yield f"log {log.log}", _dimmed(records, ", ".join(filter(None, (latest, at, part))))
        if log.began is not None:
            yield "", f"began at {log.began}; messages before are in no result"
        yield from _near_names(log)


def _near_names(log: LogStatus) -> Iterator[tuple[str, Text | str]]:
    """Yield a warning for each field that is dropped from records although its name is similar to a missing column's
    name.
    """
    for name, column in log.near_names.items():
        said = f"field {name!r} of log {log.log} is dropped, and column {column!r} is missing: name them alike"
        yield "dropped", Text(said, style="bold red")


def _overview(settings: Settings, logs: list[LogStatus], ledgers: list[Status]) -> Iterator[Any]:
    yield Text(f"lake {settings.warehouse}  namespace {settings.namespace}", style="dim")
    if not logs:
        yield f"nothing in it yet{settings.unplaced}: tailrace stream DEFINITION --from DIR"
        return
    yield table(
        "log", "last epoch", "records", "rejected", "committed",
        rows=(
            (log.log, _epoch(log.epoch), f"{log.records:,}", f"{log.rejected:,}",
             f"{_second(log.committed)}, {_ago(log.committed)}")
            for log in logs
        ),
        right=("last epoch", "records", "rejected"), whole=("log",),
    )  # fmt: skip
    yield ""
    numbers = ("last epoch", "answers at", "answers", "panes", "late", "gen")
    pipelines = table("pipeline", "watermark", *numbers, right=numbers, whole=("pipeline", "watermark"))
    for one in ledgers:
        counts = (f"{number:,}" for number in (one.panes, one.late, one.generation))
        answers = ("-", "-") if one.answers is None else (_epoch(one.answers_epoch), f"{one.answers.count:,}")
        pipelines.add_row(one.name, time_text(one.watermark), _epoch(one.epoch), *answers, *counts)
    yield pipelines


def _dimmed(first: str, then: str) -> Text:
    return Text.assemble(first, ("  " + then if then else "", "dim"))


def _epoch(number: int) -> str:
    return "none" if number < 0 else f"{number:,}"


def _second(micros: int | None) -> str:
    return time_text(None if micros is None else micros - micros % 1_000_000)


def _ago(micros: int | None) -> str:
    return "never" if micros is None else f"{span(max(0.0, time.time() - micros / 1e6))} ago"


def _latest(logs: Sequence[LogStatus]) -> int | None:
    return max((log.latest for log in logs if log.latest is not None), default=None)


def _log_data(log: LogStatus) -> dict[str, Any]:
    return {
        **fields(
            log, "log", "epoch", "records", "rejected", "duplicates", "rounded", "unread_files=unread", "near_names"
        ),
        **fields(log, "latest_event=latest", "committed"),
        "held_by": list(log.progress.behind) if log.progress is not None else [],
        **fields(log, "watermark=progress.watermark"),
        "idle": log.progress is not None and log.progress.all_idle,
        "began": log.began,
    }


def _data(own: Status) -> dict[str, Any]:
    """Return a status as JSON data, without the fields that need the definition."""
    answers = own.answers
    return {
        **fields(own, "pipeline=name", "watermark", "onward", "processing_time", "epoch", "answers_epoch"),
        "rewritten": 0 if answers is None else answers.rewritten,
        **fields(own, "generation", "token", "engine", "committed", "answers=answers.count"),
        "unanswered": 0 if answers is None else answers.unanswered,
        **fields(own, "answers.unanswered_why", "panes", "late", "rejected", "reasons", "productions", "claimed"),
    }


def _definition_data(definition: Definition, own: Status, logs: Sequence[LogStatus]) -> dict[str, Any]:
    """Return as JSON data only those fields of a status that need the definition."""
    lags = {"behind_processing_time": own.lag, "behind_latest_event": behind(own.watermark, _latest(logs))}
    windows, keys = own.windows, own.keys
    ends = ("count", "oldest_end=oldest", "newest_end=newest")
    return {
        "fingerprint": definition.fingerprint,
        "same_definition": own.same_definition,
        "lag_seconds": {name: None if lag is None else lag / 1e6 for name, lag in lags.items()},
        **fields(own, "ahead_seconds=ahead"),
        "open_windows": None if windows is None else fields(windows, *ends),
        "runs": [_run_data(run) for run in own.runs],
        **({} if keys is None else fields(keys, "keys=count", "timers", "next", "in_flight")),
    }


def _run_data(run: Run) -> dict[str, Any]:
    return {
        **fields(run, "run", "kind", "status", "generation"),
        "range": [text(run.first), text(run.last)],
        **fields(run, "fingerprint", "log_epoch", "changed", "untouched", "retracted", "reason", "engine", "at"),
    }
