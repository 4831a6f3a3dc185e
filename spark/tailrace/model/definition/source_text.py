"""Conversion of a definition's parts to source text, such as `Every(minutes(15))` instead of a repr with
`timedelta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from types import FunctionType

from tailrace.model.base.time import duration, length
from tailrace.model.triggers.combinators import AfterWatermark, AllOf, AnyOf, Repeat, Sequence, Until
from tailrace.model.triggers.trigger import AtWatermark, Trigger


def written(part: object) -> str:
    """Return the source text of a windowing, trigger, combiner or duration, as a user would write it in a definition.

    >>> from tailrace.model.base.time import hours, minutes
    >>> from tailrace.model.triggers.trigger import AfterCount, Every
    >>> from tailrace.model.windows.windows import Sliding
    >>> written(Sliding(hours(1), every=minutes(90)))
    'Sliding(hours(1), every=minutes(90))'
    >>> written(AfterWatermark(early=Every(minutes(15)), late=AfterCount(1)))
    'AfterWatermark(early=Every(minutes(15)), late=AfterCount(1))'
    """
    if isinstance(part, timedelta):
        return _duration(part)
    if isinstance(part, Trigger) and (shorthand := _after_watermark(part)):
        return shorthand
    if isinstance(part, Sequence | AllOf | AnyOf):
        return f"{type(part).__name__}({', '.join(map(written, part.parts))})"
    if isinstance(part, Mapping):
        return "{" + ", ".join(f"{name!r}: {written(value)}" for name, value in part.items()) + "}"
    if is_dataclass(part) and not isinstance(part, type):
        options = []
        for place, field in enumerate(fields(part)):
            value = getattr(part, field.name)
            if field.default is not MISSING and value == field.default:
                continue
            # For the first option, write only the value, because users leave out the option's name.
            options.append(written(value) if place == 0 else f"{field.name}={written(value)}")
        return f"{type(part).__name__}({', '.join(options)})"
    # Write the function's name instead of its repr, because the repr contains an address that differs from run to run.
    return part.__qualname__ if isinstance(part, FunctionType) else repr(part)


def _duration(value: timedelta) -> str:
    count, _, unit = length(duration(value)).partition(" ")
    return f"{unit if unit.endswith('s') else unit + 's'}({count})"


def _after_watermark(trigger: Trigger) -> str | None:
    """Return a trigger's text in the form `AfterWatermark(...)`.

    Returns None if the trigger cannot be written in this form, or has neither an early nor a late part.
    """
    on_time, late = (trigger, None)
    if isinstance(trigger, Sequence) and len(trigger.parts) == 2:
        on_time, late = trigger.parts
    early = on_time.part if isinstance(on_time, Until) and on_time.stop == AtWatermark() else None
    # `AfterWatermark` itself wraps its parts in `Repeat` if necessary, so the text leaves `Repeat` out.
    bare_early, bare_late = (one.part if isinstance(one, Repeat) else one for one in (early, late))
    if (early is None and late is None) or AfterWatermark(early=bare_early, late=bare_late) != trigger:
        return None
    parts = {"early": bare_early, "late": bare_late}
    return f"AfterWatermark({', '.join(f'{name}={written(one)}' for name, one in parts.items() if one is not None)})"
