"""The meaning of a pipeline, part by part: the fingerprint is a digest of the parts, and a change is found by them.

A lake keeps the parts as JSON beside the answers, so that a changed definition can be compared with the one that gave
the answers: whether it only gives more results, fires otherwise, or means something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from tailrace.model.definition.derived_logs import Panes, Productions
from tailrace.model.definition.log import Log
from tailrace.model.definition.source_text import written
from tailrace.model.windows.panes import END_OF_WINDOW

if TYPE_CHECKING:
    from tailrace.model.definition.map import Map
    from tailrace.model.definition.pipeline import Pipeline

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
    """The lake does not say what the definition was, only that it was a different one."""


FIRING = frozenset({"when", "how", "lateness", "on_time", "closing", "finishing", "percentiles", "timestamp"})
"""The parts that say when panes fire and how they relate, and not what a window's records add up to."""

FOLLOWS = "watermark"
"""The part that says how the log's watermark follows its records: so when panes fire, and what is too late, too."""


def of_log(log: Log) -> dict[str, Any]:
    """List the parts that say what a definition reads, by their names."""
    found: dict[str, Any] = {"columns": sorted(log.columns.items())}
    if isinstance(log, Panes | Productions):
        return found | {"reads": log.of.name, "of": log.of.fingerprint}
    follows = log.disorder if log.watermark is None else written(log.watermark)
    return found | {"event_time": log.event_time, FOLLOWS: follows}


def parts(pipeline: Pipeline) -> dict[str, Any]:
    """List the parts of a definition that give it its meaning, by their names.

    Parts are written without the options that are left out: so a new option changes no digest.
    """
    log = pipeline.log
    found = of_log(log) | {
        "key": pipeline.key,
        "what": sorted((name, written(combiner)) for name, combiner in pipeline.what.items()),
        "where": written(pipeline.where),
        "when": written(pipeline.when),
        "how": pipeline.how.value,
        "lateness": timedelta(microseconds=pipeline.lateness),
        "on_time": pipeline.on_time,
        "closing": pipeline.closing,
        "finishing": pipeline.finishing,
    }
    if pipeline.keep is not None:
        found["keep"] = written(pipeline.keep)
    if pipeline.each:
        found["each"] = tuple(written(one) for one in pipeline.each)
    if any(pipeline.when.percentile_faults("when", ())):
        found["percentiles"] = sorted(log.ahead.items())
    if pipeline.timestamp is not END_OF_WINDOW:
        found["timestamp"] = pipeline.timestamp.value
    return found


def fingerprint(pipeline: Pipeline) -> str:
    """Compute the digest of everything that gives a definition its meaning. Its name and the source do not."""
    one = parts(pipeline)
    meaning: tuple[object, ...] = (
        one["columns"],
        (one["reads"], one["of"]) if "reads" in one else (one["event_time"], one[FOLLOWS]),
        (one["key"], one["what"]),
        (one["where"], one["when"], one["how"], one["lateness"]),
        (one["on_time"], one["closing"], one["finishing"]),
    )
    # In the order in which these options were added; an option that is left out does not change the digest.
    meaning += (one["keep"],) if "keep" in one else ()
    meaning += one.get("each", ())
    meaning += (one["percentiles"],) if "percentiles" in one else ()
    meaning += (one["timestamp"],) if "timestamp" in one else ()
    return digest(meaning)


def digest(meaning: tuple[object, ...]) -> str:
    """Compute the digest of a meaning, which must be written the same wherever it is the same.

    >>> digest(("map", ("price",)))
    'dfdf41ab349a059e'
    """
    return hashlib.sha256(repr(meaning).encode()).hexdigest()[:16]


def kept(definition: Pipeline | Map) -> str:
    """Write the parts as a lake keeps them: JSON, the same for the same meaning."""
    return json.dumps({name: _plain(value) for name, value in definition.meaning.items()}, sort_keys=True)


def read(text: str) -> Parts:
    """Read the parts that a lake has kept."""
    found: Parts = json.loads(text)
    return found


def changed(before: Parts, after: Parts) -> dict[str, tuple[Any, Any]]:
    """Find the parts that differ, each as it was and as it is; None for a part that is not there."""
    pairs = {name: (before.get(name), after.get(name)) for name in {**after, **before}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def change(before: Parts | None, after: Parts) -> Change:
    """Classify the change of a definition from `before`, None where the lake does not say, to `after`."""
    if before is None:
        return Change.UNKNOWN
    different = set(changed(before, after))
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
