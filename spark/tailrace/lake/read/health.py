"""Use the properties of a stream's tables to check whether the stream keeps up with its input.

No engine is needed, and no rows are counted.
"""

from __future__ import annotations

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import progress_of
from tailrace.lake.read.stage_progress import StageProgress, stage_progress
from tailrace.model.base.clock import ahead
from tailrace.model.base.time import BEGINNING, END_OF_TIME, length, text
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition

MINUTE = 60_000_000


def health(lake: Lake, definition: Definition) -> list[StageProgress]:
    """Return the progress of each stage of a definition, in order; a stage that no stream has started is left out."""
    found = (stage_progress(lake, stage.name) for stage in chain(definition))
    return [one for one in found if one is not None]


def answer_snapshots(lake: Lake, definition: Definition) -> dict[str, str | None]:
    """Return the current snapshots of the stages' tables of answers.

    The result maps a table's name to the id of its current snapshot, as text. If the table has no snapshot, the value
    is None.
    """
    tables = [stage.name for stage in chain(definition) if lake.has(stage.name)]
    found = {name: lake.head(name).snapshot for name in tables}
    return {name: None if snapshot is None else str(snapshot) for name, snapshot in found.items()}


def stream_faults(lake: Lake, definition: Definition, now: int, most: int | None, *, young: bool = False) -> list[str]:
    """List the problems of a stream, one line for each: stages without a ledger, and watermarks too far from `now`.

    A watermark may be at most `most` behind `now` and at most one day ahead of `now` (`ahead`); a watermark at the end
    of time is never a problem. `now` is a time and `most` is a duration, both in microseconds. `most` is None if the
    stream's clock follows the event times of the records instead of real time; watermarks are then not checked. If
    `young` is True, the stream has only just started, so a stage without a ledger or without a watermark is not a
    problem.
    """
    found = {one.name: one for one in health(lake, definition)}
    lines = [f"{stage.name} has no ledger yet" for stage in chain(definition) if not young and stage.name not in found]
    if most is None:
        return lines
    for one in found.values():
        if one.watermark == BEGINNING:
            lines += [] if young else [f"{one.name} has no watermark yet"]
        elif one.watermark < min(now - most, END_OF_TIME):
            behind = length(max(MINUTE, (now - one.watermark) // MINUTE * MINUTE))
            by = _by(lake, definition)
            lines.append(f"the watermark of {one.name} is at {text(one.watermark)}, {behind} behind{by}")
        elif over := ahead(one.watermark, now):
            by = length(over // MINUTE * MINUTE)
            lines.append(f"the watermark of {one.name} is at {text(one.watermark)}, {by} ahead")
    return lines


def _by(lake: Lake, definition: Definition) -> str:
    """Return text that names the partitions that hold the watermark back.

    If there are several logs, a log that has only one partition is named by the log's name instead of the partition's
    name. The text is empty if there is only one log and this log has only one partition.
    """
    logs = definition.sources
    each = {log.name: progress_of(lake, log.name) if lake.has(log.name) else None for log in logs}
    there = {name: one for name, one in each.items() if one is not None and not one.all_idle}
    reached = min((one.watermark for one in there.values()), default=None)
    behind: list[str] = []
    for name, progress in there.items():
        if progress.watermark == reached and len(progress.partitions) > 1:
            behind += progress.behind
        elif progress.watermark == reached and len(logs) > 1:
            behind.append(f"log {name}")
    if not behind:
        return ""
    names, more = behind[:_NAMED], len(behind) - _NAMED
    others = f" and {more} more" if more > 0 else ""
    return f", held back by {', '.join(names)}{others}"


_NAMED = 3
