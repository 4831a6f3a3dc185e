"""The meaning of a definition as a dict of named parts, and the fingerprint, which is a digest of these parts.

A lake stores the parts as JSON together with the answers. So a changed definition can be compared with the definition
that computed the answers. The comparison shows whether the changed definition only adds results, fires panes at other
times, or has another meaning.
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
    """The kinds of changes of a definition, from the smallest change to the largest."""

    NOTHING = "nothing"
    NEW_COLUMNS = "new columns"
    """The definition computes additional results; all existing results stay the same."""
    FIRES = "fires otherwise"
    """Panes fire at other times, or the accumulation mode differs: which records a pane covers, and whether later panes
    retract it.

    The answer of a complete window stays the same.
    """
    BREAKING = "breaking"
    """Existing results disappear, or their meaning changes."""
    UNKNOWN = "changed"
    """The lake stores the fingerprint of a different definition but not its parts, so the change is unknown."""


FIRING = frozenset({"when", "how", "lateness", "on_time", "closing", "finishing", "percentiles", "timestamp", "stops"})
"""The parts of a definition's meaning that decide when panes fire, which records a pane covers, and which event time an
answer has.

These parts do not affect the result of a complete window.
"""

FOLLOWS = "watermark"
"""The key, in a definition's meaning, of the log's watermark strategy, which decides when panes fire and which records
are too late.
"""


def of_log(log: Log) -> dict[str, Any]:
    """Return the parts of a definition's meaning that describe its log, as a dict from the part's name to its value."""
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
    """Return the digest of a definition's meaning. Two meanings that are equal must also have equal reprs.

    >>> digest(("map", ("price",)))
    'dfdf41ab349a059e'
    """
    return hashlib.sha256(repr(meaning).encode()).hexdigest()[:16]


def encode_meaning(meaning: Parts) -> str:
    """Encode the parts of a definition as the JSON text that a lake stores. Equal parts result in equal texts."""
    return json.dumps({name: _plain(value) for name, value in meaning.items()}, sort_keys=True)


def decode_meaning(text: str) -> Parts:
    """Decode the JSON text in which a lake stores the parts of a definition."""
    found: Parts = json.loads(text)
    return found


def differing_parts(before: Parts, after: Parts) -> dict[str, tuple[Any, Any]]:
    """Return a dict that maps the name of each differing part to the pair of the part's old value and new value.

    A missing value is `None`.
    """
    pairs = {name: (before.get(name), after.get(name)) for name in {**after, **before}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def change(before: Parts | None, after: Parts) -> Change:
    """Classify a definition's change from `before` to `after`; `before` is None if the lake does not store the old
    parts.
    """
    if before is None:
        return Change.UNKNOWN
    different = set(differing_parts(before, after))
    if not different:
        return Change.NOTHING
    if different - FIRING - {FOLLOWS, "what"}:
        return Change.BREAKING
    # If `what` differs, every earlier result must still be defined as before.
    if "what" in different and not dict(before["what"]).items() <= dict(after["what"]).items():
        return Change.BREAKING
    return Change.NEW_COLUMNS if different == {"what"} else Change.FIRES


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return written(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
