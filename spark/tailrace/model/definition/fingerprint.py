"""The meaning of a definition as a dict of named parts, and the fingerprint, which is a digest of these parts.

A lake stores the parts as JSON together with the answers. So a changed definition can be compared with the definition
that computed the answers. The comparison shows whether the changed definition only adds results, fires panes at other
times, or has another meaning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
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


def of_log(log: Log, used: Collection[str] | None) -> dict[str, Any]:
    """Return the parts of a definition's meaning that describe its log, as a dict from the part's name to its value.

    `used` has the columns that the definition uses; the event time is always used. If `used` is None, the result is the
    meaning in lakes of earlier versions, which had all columns.
    """
    columns = {name: type for name, type in log.columns.items() if used is None or name in {*used, log.event_time}}
    found: dict[str, Any] = {"columns": sorted(columns.items())}
    if isinstance(log, Panes | Productions):
        of = log.of.former_fingerprint if used is None else log.of.fingerprint_of(columns)
        return found | {"reads": log.of.name, "of": of}
    if isinstance(log, Arrivals):
        return found | {"reads": "arrivals", "of": log.of.name}
    if isinstance(log, Union):
        members = [
            (name, digest(tuple(sorted(of_log(one, None if used is None else log.used_of(name, columns)).items()))))
            for name, one in sorted(log.members.items())
        ]
        return found | {"reads": f"union by {log.tag}", "of": members}
    if log.signed:
        found["signed"] = True
    if required := tuple(name for name in log.required if name in columns):
        found["required"] = required
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

    A missing value is `None`. Which columns a definition uses follows from its other parts. So if another part differs,
    or a column has another type, only the columns with another type are included. Required columns are compared if both
    definitions use them.
    """
    pairs = {name: (before.get(name), after.get(name)) for name in {**after, **before}}
    found = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if "columns" in before and _required(before, after) == _required(after, before):
        found.pop("required", None)
    retyped = _retyped(before, after)
    if retyped:
        was, now = ([one for one in some["columns"] if one[0] in retyped] for some in (before, after))
        found["columns"] = (was, now)
    elif len(found) > 1:
        found.pop("columns", None)
    return found


def means_the_same(before: Parts, after: Parts) -> bool:
    """Return True if two meanings differ at most in columns that only `before` has.

    Earlier versions stored all columns of the log in a meaning, even columns that the definition did not use.

    >>> before = {"key": ["city"], "columns": [["at", "timestamp"], ["city", "string"], ["km", "int"]]}
    >>> means_the_same(before, {"key": ["city"], "columns": [["at", "timestamp"], ["city", "string"]]})
    True
    >>> means_the_same(before, {"key": ["city"], "columns": [["at", "timestamp"], ["city", "bigint"]]})
    False
    """
    alike = differing_parts(before, after).keys() <= {"columns"}
    return alike and all(one in before["columns"] for one in after["columns"])


def outputs(meaning: Parts) -> list[str]:
    """Return the output columns that the meaning of a map or a join names; empty for other definitions.

    >>> outputs({"what": ["city", "price"]}), outputs({"what": [["n", "Count()"]]})
    (['city', 'price'], [])
    """
    if "on" in meaning:
        return [name for _, taken in meaning["columns"] for name, _ in taken]
    return [name for name in meaning.get("what", ()) if isinstance(name, str)]


def _required(one: Parts, other: Parts) -> list[str]:
    """List the columns that one definition requires and the other uses."""
    used = dict(other["columns"])
    return [name for name in one.get("required", ()) if name in used]


def _retyped(before: Parts, after: Parts) -> set[str]:
    """Return the names of the columns that both definitions use, with different types."""
    types = dict(before.get("columns", ()))
    return {name for name, type in after.get("columns", ()) if types.get(name, type) != type}


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
