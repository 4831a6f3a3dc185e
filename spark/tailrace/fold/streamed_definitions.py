"""Name the stages and the landed logs of the definitions that a stream folds."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.epoch_properties import CLOCK
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union
from tailrace.model.logs.log import Log
from tailrace.model.logs.widest import LogConflictError, widest


class StreamError(TailraceError, RuntimeError):
    """The error for a stream that cannot start or cannot continue."""


def stages_of(definitions: Sequence[Definition]) -> list[Definition]:
    """Return the stages of all definitions without repetitions; each stage comes after the stages that it reads.

    Raises `StreamError` if two different stages have the same name.
    """
    stages: dict[str, Definition] = {}
    for stage in (stage for definition in definitions for stage in chain(definition)):
        if stages.setdefault(stage.name, stage) != stage:
            raise StreamError(f"two of the definitions are named {stage.name}: give each stage a name of its own")
    return list(stages.values())


def landed_logs(definitions: Sequence[Definition]) -> tuple[Log, ...]:
    """Return the logs that the definitions read from sources, sorted by name.

    If the definitions declare a log with different columns, the returned log has all of these columns. Raises
    `StreamError` if the definitions declare a log in ways that contradict each other.
    """
    found: dict[str, list[tuple[str, Log]]] = {}
    for definition in definitions:
        for log in definition.sources:
            found.setdefault(log.name, []).append((definition.name, log))
    try:
        return tuple(widest(found[name]) for name in sorted(found))
    except LogConflictError as error:
        raise StreamError(str(error)) from None


def reads_log(log: Log, landed: str) -> bool:
    """Return True if the records of a landed log are among those of a log, or are perhaps among them."""
    if isinstance(log, Panes | Productions):
        return False
    if isinstance(log, Union):
        return any(reads_log(member, landed) for member in log.members.values())
    return reads_log(log.of, landed) if isinstance(log, Arrivals) else log.name == landed


def records_by_epoch(lake: Lake, logs: Sequence[Log]) -> dict[int, int]:
    """Count the records of each epoch in all of these logs together, from the counts in the logs' commits."""
    found: dict[int, int] = {}
    for commit in (commit for log in logs for commit in commits(lake, log.name).all):
        if CLOCK[1] in commit.properties:
            epoch = int(commit.properties["epoch"])
            found[epoch] = found.get(epoch, 0) + commit.added
    return found
