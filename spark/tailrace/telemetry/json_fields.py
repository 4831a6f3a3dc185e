"""Convert results to JSON data.

The values of a JSON key have the same format in every report; for example, instants are always text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from tailrace.model.base.time import text
from tailrace.model.windows.windows import Window

_INSTANTS = (
    "watermark", "onward", "processing_time", "event_time", "latest_event", "committed", "complete_until",
    "closed_until", "last_new", "landed_at", "oldest_end", "newest_end", "next",
)  # fmt: skip
"""The JSON keys whose values are instants. Results contain instants in microseconds; reports contain instants as
text.
"""

_FORMS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_INSTANTS, text),
    **dict.fromkeys(("behind_seconds", "ahead_seconds"), lambda micros: micros / 1e6),
    **dict.fromkeys(("seconds", "lent_seconds"), lambda seconds: round(seconds, 3)),
}

ENGINE = ("engine=engine.engine", "engine_because=engine.why")
"""The arguments with which `fields` returns a run's engine and the reason for the choice of this engine."""


def fields(value: object, *names: str) -> dict[str, Any]:
    """Return attributes of a result as JSON data, in the order of `names`.

    A name is an attribute, a path of attributes (`version.epoch`), or `KEY=PATH`. If a name has no `KEY`, its key is
    the last attribute of the path. If an attribute on the path is None, the value is None.

    >>> from types import SimpleNamespace
    >>> late = SimpleNamespace(epoch=3, behind=1_500_000, window=Window(0, 60_000_000), run=None)
    >>> fields(late, "epoch", "behind_seconds=behind", "taken_in_by=run.run")
    {'epoch': 3, 'behind_seconds': 1.5, 'taken_in_by': None}
    >>> fields(late, "window")
    {'window': ['1970-01-01T00:00:00Z', '1970-01-01T00:01:00Z']}
    """
    made = {}
    for name in names:
        key, _, path = name.rpartition("=")
        key = key or path.rpartition(".")[2]
        found: Any = value
        for attribute in path.split("."):
            found = None if found is None else getattr(found, attribute)
        made[key] = _form(key, found)
    return made


def chain_data(stages: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the data of a definition (the last of `stages`), with the data of the stages that it reads.

    If there are such stages, the key `earlier` lists their data.
    """
    *earlier, last = stages
    return last | ({"earlier": earlier} if earlier else {})


def _form(key: str, value: Any) -> Any:
    if isinstance(value, Window):
        return [text(value.start), text(value.end)]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, int | float) and key in _FORMS:
        return _FORMS[key](value)
    return dict(value) if isinstance(value, Mapping) else value
