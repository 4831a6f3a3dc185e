"""Tell in words what became of a record in a definition: in the terminal and on a page by the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.lake.read.record_trace import InWindow, LeftOut, Row, State, Step


@dataclass(frozen=True)
class Outcome:
    """What became of a record in a definition: the state in a word or two, and what there is to say of it."""

    state: str
    told: tuple[str, ...]


def outcome(step: Step, span: Callable[[int], str], value: Callable[[Any], str]) -> Outcome:
    """Tell what became of a record.

    `span` writes a length of time in microseconds, and `value` a value of a table, cut as there is room.
    """
    if isinstance(step, InWindow):
        return Outcome(step.state.value, tuple(_in_window(step, span, value)))
    if isinstance(step, LeftOut):
        return Outcome("left out", (value(step.reason),))
    if isinstance(step, Row):
        given = f"in epoch {step.epoch}: {values_told(step.values, value)}"
        return Outcome("taken back" if step.taken_back else "given", (given,))
    if step.behind is None:
        return Outcome("waiting", ("nothing has come out of it",))
    return Outcome("late", (f"{span(step.behind)} behind the watermark, in epoch {step.epoch}",))


def _in_window(step: InWindow, span: Callable[[int], str], value: Callable[[Any], str]) -> Iterator[str]:
    if step.late is not None:
        yield f"{span(step.late.behind)} too late, in epoch {step.late.epoch} ({value(step.late.reason)})"
        if step.run is None:
            yield "no backfill has taken it in"
        else:
            why = f": {value(step.run.reason)}" if step.run.reason else ""
            yield f"taken in by backfill {step.run.run} of generation {step.run.generation}{why}"
    if step.panes:
        first, count = step.panes[0], len(step.panes)
        named = f"in {count:,} pane{'s' * (count > 1)}, the first {first.timing.replace('_', ' ')}"
        yield f"{named} in epoch {first.version.epoch}, generation {first.version.generation}"
    if step.state is State.COUNTED and step.answer is not None:
        yield f"the answer counts it: {values_told(step.answer.answer, value)}"
    elif step.state is State.WAITING:
        yield "no pane with it has fired yet"
    elif step.state is State.GONE:
        yield "its window has no answer any more"


def values_told(values: Mapping[str, Any], value: Callable[[Any], str]) -> str:
    """Write the columns of a row one after the other."""
    return ", ".join(f"{name} {value(one)}" for name, one in values.items())
