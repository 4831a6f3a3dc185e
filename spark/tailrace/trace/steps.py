"""Describe the outcomes of a record in a definition, as text for people and as data for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from tailrace.lake.catalog.run import Run
from tailrace.model.base.time import moment, text
from tailrace.model.definition.record_steps import Prepared
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.model.windows.panes import Key
from tailrace.model.windows.windows import Window
from tailrace.trace.key_history import LedgerLate, LedgerPane

Record: TypeAlias = Mapping[str, Any]
Words: TypeAlias = Callable[[Any], str]
"""A function that formats a value for people.

The value is either a table value, which is cut if it is long, or a duration in microseconds.
"""


class State(Enum):
    """The state of a record in a window.

    COUNTED: the window's current answer counts the record. WAITING: no pane counts the record yet. LATE: the record was
    too late, and no backfill has included the record. GONE: the window does not have an answer any more.
    """

    COUNTED = "counted"
    WAITING = "waiting"
    LATE = "late"
    GONE = "gone"


@dataclass(frozen=True)
class Step:
    """The outcome of a record in one definition."""

    definition: str

    @property
    def word(self) -> str:
        """The outcome of the record, in one or two words."""
        raise NotImplementedError

    @property
    def onward(self) -> Sequence[Record]:
        """The records that the readers of the definition receive because of this record."""
        return ()

    def told(self, span: Words, value: Words) -> Iterator[str]:
        """Yield the outcome as sentences, one for each fact.

        `span` formats a duration, and `value` formats a table value.
        """
        raise NotImplementedError

    @property
    def data(self) -> dict[str, Any]:
        """The outcome of the record, as JSON data."""
        return {"definition": self.definition, "state": self.word}


@dataclass(frozen=True)
class InWindow(Step):
    """The outcome of a record in one window of a pipeline.

    `late` is set if the record was too late; `run` is then the backfill that included the record, or None if no
    backfill did. `panes` are the panes that count the record, without retractions, and `answer` is the window's current
    answer. If this answer counts the record, `passed_on` is the record that a later stage receives for the answer.
    """

    key: Key
    window: Window
    state: State
    late: LedgerLate | None
    run: Run | None
    panes: tuple[LedgerPane, ...]
    answer: LedgerPane | None
    passed_on: Record | None = None

    @property
    def word(self) -> str:
        return self.state.value

    @property
    def onward(self) -> Sequence[Record]:
        return () if self.passed_on is None else (self.passed_on,)

    def told(self, span: Words, value: Words) -> Iterator[str]:
        if self.late is not None:
            yield f"{span(self.late.behind)} too late, in epoch {self.late.epoch} ({value(self.late.reason)})"
            if self.run is None:
                yield "no backfill has taken it in"
            else:
                why = f": {value(self.run.reason)}" if self.run.reason else ""
                yield f"taken in by backfill {self.run.run} of generation {self.run.generation}{why}"
        if self.panes:
            first, count = self.panes[0], len(self.panes)
            named = f"in {count:,} pane{'s' * (count > 1)}, the first {first.timing.replace('_', ' ')}"
            yield f"{named} in epoch {first.version.epoch}, generation {first.version.generation}"
        if self.state is State.COUNTED and self.answer is not None:
            yield f"the answer counts it: {values_told(self.answer.answer, value)}"
        elif self.state is State.WAITING:
            yield "no pane with it has fired yet"
        elif self.state is State.GONE:
            yield "its window has no answer any more"

    @property
    def data(self) -> dict[str, Any]:
        late, run = self.late, self.run
        return super().data | {
            "key": list(self.key),
            "window": [text(self.window.start), text(self.window.end)],
            "late": None if late is None else {"epoch": late.epoch, "behind_seconds": late.behind / 1e6},
            "taken_in_by": None if run is None else {"run": run.run, "generation": run.generation},
            "panes": [{"version": list(pane.version), "timing": pane.timing} for pane in self.panes],
            "answer": None if self.answer is None else dict(self.answer.answer),
        }


@dataclass(frozen=True)
class LeftOut(Step):
    """The outcome of a record that a definition leaves out; `rejected` is True if the record was invalid."""

    reason: str
    rejected: bool = False

    @property
    def word(self) -> str:
        return "rejected" if self.rejected else "left out"

    def told(self, span: Words, value: Words) -> Iterator[str]:
        yield value(self.reason)

    @property
    def data(self) -> dict[str, Any]:
        return super().data | {"reason": self.reason}


@dataclass(frozen=True)
class Row(Step):
    """A row that a map or a join has output for the record, or that a computation has output for the record's key and
    epoch.

    `place` is the row's position for the definition's readers, in the same form as in ledgers. `taken_back` is True if
    the row was retracted.
    """

    values: Record
    event_time: int
    epoch: int | None
    place: tuple[Any, ...]
    taken_back: bool = False

    @property
    def word(self) -> str:
        return "taken back" if self.taken_back else "given"

    @property
    def onward(self) -> Sequence[Record]:
        if self.taken_back:
            return ()
        return ({**self.values, PANE_TIME: moment(self.event_time), **dict(zip(PLACE, self.place, strict=True))},)

    def told(self, span: Words, value: Words) -> Iterator[str]:
        yield f"in epoch {self.epoch}: {values_told(self.values, value)}"

    @property
    def data(self) -> dict[str, Any]:
        return super().data | {"epoch": self.epoch, "values": dict(self.values)}


@dataclass(frozen=True)
class Passed(Step):
    """The outcome of a record for which a join or a computation has no output.

    `behind` is the time by which the record was too late, in microseconds. If `behind` is None, the record was not too
    late, but there is no output for it yet.
    """

    epoch: int | None = None
    behind: int | None = None

    @property
    def word(self) -> str:
        return "waiting" if self.behind is None else "late"

    def told(self, span: Words, value: Words) -> Iterator[str]:
        if self.behind is None:
            yield "nothing has come out of it"
        else:
            yield f"{span(self.behind)} behind the watermark, in epoch {self.epoch}"

    @property
    def data(self) -> dict[str, Any]:
        behind = None if self.behind is None else self.behind / 1e6
        return super().data | {"epoch": self.epoch, "behind_seconds": behind}


def left_out(definition: str, prepared: Prepared) -> Iterator[LeftOut]:
    """Yield the outcomes of a record that a definition's steps reject or leave out.

    If the steps produce records without a rejection, yield nothing.
    """
    made, reasons = prepared
    yield from (LeftOut(definition, reason, rejected=True) for reason in reasons)
    if not made and not reasons:
        yield LeftOut(definition, "a step or keep leaves it out")


def values_told(values: Mapping[str, Any], value: Words) -> str:
    """Format a row as text, with the name and the value of each column."""
    return ", ".join(f"{name} {value(one)}" for name, one in values.items())
