"""The meaning of a definition, part by part: the fingerprint is a digest of the parts, and they show what changed.

A lake keeps the parts as JSON beside the answers, so that a changed definition can be compared with the one that gave
the answers: whether it only gives more results, fires otherwise, or means something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, TypeAlias

from tailrace.model.definition.source_text import written
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union
from tailrace.model.logs.log import Log

Parts: TypeAlias = "Mapping[str, Any]"


class Change(Enum):
    """The kinds of changes of a definition, the least first."""

    NOTHING = "nothing"
    NEW_COLUMNS = "new columns"
    """The definition gives more results; the results that readers have stay the same."""
    FIRES = "fires otherwise"
    """Panes come at other times or relate otherwise; the answer of a window with all its records stays."""
    BREAKING = "breaking"
    """Results that readers have go away, or come to mean something else."""
    UNKNOWN = "changed"
    """The lake has another definition's fingerprint, and not its meaning."""


FIRING = frozenset({"when", "how", "lateness", "on_time", "closing", "finishing", "percentiles", "timestamp", "stops"})
"""The parts that decide when panes fire and how they relate, and not the results of a window's records."""

FOLLOWS = "watermark"
"""The part that says how the log's watermark follows its records: so when panes fire, and what is too late, too."""


def of_log(log: Log) -> dict[str, Any]:
    """List the parts of the meaning that describe the log of a definition, by their names."""
    found: dict[str, Any] = {"columns": sorted(log.columns.items())}
    if isinstance(log, Panes | Productions):
        return found | {"reads": log.of.name, "of": log.of.fingerprint}
    if isinstance(log, Arrivals):
        return found | {"reads": "arrivals", "of": log.of.name}
    if isinstance(log, Union):
        members = [(name, digest(tuple(sorted(of_log(one).items())))) for name, one in sorted(log.members.items())]
        return found | {"reads": f"union by {log.tag}", "of": members}
    if log.signed:
        found["signed"] = True
    if log.required:
        found["required"] = tuple(log.required)
    follows = log.disorder if log.watermark is None else written(log.watermark)
    return found | {"event_time": log.event_time, FOLLOWS: follows}


def digest(meaning: tuple[object, ...]) -> str:
    """Compute the digest of a meaning, which must be written the same wherever it is the same.

    >>> digest(("map", ("price",)))
    'dfdf41ab349a059e'
    """
    return hashlib.sha256(repr(meaning).encode()).hexdigest()[:16]


def encode_meaning(meaning: Parts) -> str:
    """Write the parts of a definition as a lake keeps them: JSON, equal for equal meanings."""
    return json.dumps({name: _plain(value) for name, value in meaning.items()}, sort_keys=True)


def decode_meaning(text: str) -> Parts:
    """Read the parts that a lake has kept."""
    found: Parts = json.loads(text)
    return found


def differing_parts(before: Parts, after: Parts) -> dict[str, tuple[Any, Any]]:
    """Find the parts that differ, each as it was and as it is; None for a part that is not there."""
    pairs = {name: (before.get(name), after.get(name)) for name in {**after, **before}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def change(before: Parts | None, after: Parts) -> Change:
    """Classify the change of a definition from `before`, None where the lake does not say, to `after`."""
    if before is None:
        return Change.UNKNOWN
    different = set(differing_parts(before, after))
    if not different:
        return Change.NOTHING
    if different - FIRING - {FOLLOWS, "what"}:
        return Change.BREAKING
    if "what" in different and not _only_more(before, after):
        return Change.BREAKING
    return Change.NEW_COLUMNS if different == {"what"} else Change.FIRES


def _only_more(before: Parts, after: Parts) -> bool:
    """Tell whether every result from before is still the same."""
    return dict(before["what"]).items() <= dict(after["what"]).items()


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return written(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
