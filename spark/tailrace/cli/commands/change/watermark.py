"""`tailrace watermark`: show the watermark of each partition of a log, or declare the log complete up to an instant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import not_streamed, parse_instant, span, time_text
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.time import BEGINNING, text
from tailrace.model.definition.source_text import written
from tailrace.model.logs.log import Log, log_names
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.model.definition.definition import Definition as AnyDefinition
    from tailrace.model.step.progress import Partition, Progress

PARTITIONS = 40
"""The maximum number of partitions in the printed table. The table lists the partitions with the earliest watermarks
first. JSON output has all partitions.
"""


def watermark(
    definition: str,
    until: str | None = None,
    partition: str | None = None,
    log: list[str] | None = None,
    note: str | None = None,
    json: bool = False,
) -> None:
    """Show the watermark of a definition's log, by partition, and the partitions that hold the watermark back.

    With --until, the command declares that all records with an event time before the given instant have arrived. In the
    stream's next epoch, the watermark advances to this instant. A record with an earlier event time that arrives
    afterwards is late or, if its window has already closed, too late. A watermark never goes back. If a definition
    reads several logs, name each complete log with --log. Starts no Spark.
    """
    output = Output(json)
    if until is None and (partition is not None or note is not None):
        raise UsageError("--partition and --note belong to --until, which says until when the input is complete")
    logs = _chosen(load_any(definition), log or [], saying=until is not None)
    if partition is not None and len(logs) > 1:
        raise UsageError(f"--partition {partition} is of one log: name that one alone with --log")
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.commit.epoch_properties import progress_of
    from tailrace.lake.commit.signal_tables import Completions

    lake = Lake(Settings())
    if until is not None:
        said, at = [Completions(lake, one) for one in logs], parse_instant(until, "--until")
        for completions in said:
            completions.say(at, partition, note)
        of = "" if partition is None else f"partition {partition} of "
        output.report(
            _of_logs(
                {"log": one.name, "complete_until": text(at), "partition": partition, "table": completions.table}
                for one, completions in zip(logs, said, strict=True)
            ),
            (f"said that {of}log {one.name} is complete until {time_text(at)}" for one in logs),
        )
        return
    found = [(one, progress_of(lake, one.name) if lake.has(one.name) else None) for one in logs]
    if json:
        output.data(_of_logs(_data(one, progress) for one, progress in found))
        return
    for one, progress in found:
        if progress is None:
            output.verbatim(f"log {one.name}: {not_streamed(lake.settings, definition)}")
        else:
            output.text(*_lines(one, progress))


def _of_logs(data: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON data of a single log unchanged, or the data of several logs as a list under the key `logs`."""
    each = list(data)
    return each[0] if len(each) == 1 else {"logs": each}


def _chosen(definition: AnyDefinition, names: Sequence[str], *, saying: bool) -> Sequence[Log]:
    """Return the named logs of a definition, or all its logs if `names` is empty.

    `saying` is true if the user declares logs complete. Raises `UsageError` if the definition does not read a named
    log. Also raises `UsageError` if `saying` is true, the definition reads several logs, and `names` is empty.
    """
    logs = definition.sources
    there = log_names(logs)
    if unknown := [name for name in names if name not in {log.name for log in logs}]:
        raise UsageError(f"--log {unknown[0]}: {definition.name} reads no such log: expected one of {there}")
    if saying and not names and len(logs) > 1:
        raise UsageError(
            f"{definition.name} reads {len(logs)} logs, {there}: say which is complete, with a --log for each; "
            f"for all of them: {' '.join(f'--log {log.name}' for log in logs)}"
        )
    return [log for log in logs if log.name in names] if names else logs


def _lines(log: Log, progress: Progress) -> Iterator[Any]:
    yield Text.assemble((f"log {log.name}", "bold"), f"  watermark {time_text(progress.watermark)}")
    yield Text(f"each partition by {written(log.strategy)}; the least counts", style="dim")
    partitions = sorted(progress.partitions.items(), key=lambda one: (one[1].watermark, one[0]))
    if not partitions:
        return
    more = f"the {PARTITIONS} furthest behind of {len(partitions)}; --json shows all"
    yield table(
        "partition", "watermark", "latest event", "silent for", "behind", "state",
        rows=_rows(progress, partitions), right=("silent for", "behind"),
        caption=more if len(partitions) > PARTITIONS else None,
    )  # fmt: skip


def _rows(progress: Progress, partitions: Sequence[tuple[str, Partition]]) -> Iterator[tuple[str | Text, ...]]:
    """Yield a table row for each partition, at most `PARTITIONS` rows."""
    furthest = partitions[-1][1].watermark
    for name, one in partitions[:PARTITIONS]:
        lag = span((furthest - one.watermark) / 1e6) if one.watermark > BEGINNING else "–"
        state = _state(progress, name)
        styled = Text(state, style={"idle": "dim", "holds back": "yellow"}.get(state, ""))
        since = span((progress.now - one.active) / 1e6)
        yield name or "all", time_text(one.watermark), time_text(one.latest), since, lag, styled


def _state(progress: Progress, name: str) -> str:
    """Return the effect of a partition on the watermark as a word.

    The word is "idle" if the watermark does not wait for the partition. It is "holds back" if the log has several
    partitions, and no partition for which the watermark waits has an earlier watermark. Otherwise, the word is "waited
    for".
    """
    if progress.is_idle(name):
        return "idle"
    if name in progress.behind and len(progress.partitions) > 1:
        return "holds back"
    return "waited for"


def _data(log: Log, progress: Progress | None) -> dict[str, Any]:
    data: dict[str, Any] = {"log": log.name, "strategy": written(log.strategy), "started": progress is not None}
    if progress is None:
        return data
    partitions = {
        name: fields(one, "watermark", "latest_event=latest", "last_new=active") | {"idle": progress.is_idle(name)}
        for name, one in sorted(progress.partitions.items())
    }
    return data | fields(progress, "watermark", "processing_time=now", "held_by=behind") | {"partitions": partitions}
