"""A guard for custom triggers: if a trigger fails, its window fires no pane, but the stream does not stop (rule X7)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TypeVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import failure
from tailrace.model.triggers.composite import Composite
from tailrace.model.triggers.trigger import Moment, Ready, Slots, Trigger, is_own, slot_types

Found = TypeVar("Found")

_BIGINT = 2**63


class TriggerWarning(RuntimeWarning):
    """The warning that a custom trigger failed for a window. The window keeps its records until a pane fires."""


def has_own(trigger: Trigger) -> bool:
    """Return True if the trigger or one of its parts is custom code."""
    return is_own(trigger) or (isinstance(trigger, Composite) and any(map(has_own, trigger.of)))


class GuardedTrigger(Trigger):
    """A wrapper for a custom trigger.

    If the trigger raises an error, it does not fire, and its slots keep their old values. Returning a slot value of the
    wrong type has the same effect as an error. The window keeps its records, and the trigger is evaluated again in the
    next epoch. At the latest, the records are output in the window's last pane, which fires when the window closes. The
    reference execution uses this guard, and so do the other executions if Python code evaluates the trigger. SQL code
    needs no guard, because it calls no custom code for a window.
    """

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self._types = slot_types(trigger)

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        return self._slots(lambda: self.trigger.arrived(o, slots, measures), slots)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        return self._tried(lambda: self.trigger.ready(o, slots, moment), Ready(False, False))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        return self._slots(lambda: self.trigger.fired(o, slots, moment), slots)

    def done(self, o: Algebra, slots: Slots) -> Term:
        return self._tried(lambda: self.trigger.done(o, slots), False)

    def _slots(self, ask: Callable[[], dict[str, Term]], before: Slots) -> dict[str, Term]:
        def sound() -> dict[str, Term]:
            after = ask()
            for name, type in self._types.items():
                if not _fits(after[name], type):
                    raise TypeError(f"slot {name} is {after[name]!r:.80}, which is no {type}")
            return after

        return self._tried(sound, dict(before))

    def _tried(self, ask: Callable[[], Found], otherwise: Found) -> Found:
        try:
            return ask()
        except Exception as error:
            kept = "the window keeps its records until a pane fires, the last as it closes"
            warnings.warn(f"{type(self.trigger).__name__}: {failure(error)}; {kept}", TriggerWarning, stacklevel=2)
            return otherwise


def _fits(value: object, type: str) -> bool:
    if type == "boolean":
        return isinstance(value, bool)
    return isinstance(value, int) and not isinstance(value, bool) and -_BIGINT <= value < _BIGINT
