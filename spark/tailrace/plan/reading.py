"""Say in a few words what a definition reads."""

from __future__ import annotations

from tailrace.model.definition.chain import Definition
from tailrace.model.logs.derived_logs import Arrivals
from tailrace.model.logs.log import Log, log_names


def reads(definition: Definition) -> str:
    """Name the log that a definition reads, or the definition that it comes after; of a union, each.

    >>> from tailrace.model.samples.visits import example
    >>> reads(example())
    'log clicks'
    """
    when = " by arrival" if isinstance(definition.log, Arrivals) else ""
    return ", ".join(_one(part) for part in definition.log.parts) + when


def taken(log: Log) -> str:
    """Say how much an epoch takes of a log."""
    if len(log.parts) > 1:
        return f"{len(log.columns)} columns of the logs {log_names(log.parts)}"
    (part,) = log.parts
    return f"{len(log.columns)} columns of log {part.name}" if part.landed else f"what {log.name} produces"


def _one(log: Log) -> str:
    return f"{'log' if log.landed else 'after'} {log.name}"
