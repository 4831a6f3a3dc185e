"""The base of definitions: the facts about a kind of definition that every layer may ask for.

A kind is a class: `Pipeline`, `Computation`, `Map` or `Join`. Its meaning is in `model/`. Each layer has a verb for it,
a `functools.singledispatch` function with an entry for each kind. So a new kind is a class and its entries.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.logs.derived_logs import Panes, Productions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from tailrace.model.base.conditions import Condition
    from tailrace.model.base.several import Several
    from tailrace.model.definition.record_steps import ElementWise, Reasons
    from tailrace.model.logs.log import Log


class KindError(TailraceError, TypeError):
    """A kind of definition that a layer has no entry for."""

    def __init__(self, verb: str, definition: object) -> None:
        super().__init__(f"{type(definition).__name__}: no kind of definition that there is a {verb} for; register one")


class Definition:
    """The base of every definition: a name, a log that it reads, and a ledger that it writes."""

    kind_name: ClassVar[str]
    """The word for the kind, as people read it."""

    windowed: ClassVar[bool] = False
    """Whether the definition has windows, whose answers are kept."""

    repairs_late: ClassVar[bool] = False
    """Whether records may come too late for the definition's windows or pairs, and a backfill takes them in."""

    recomputable: ClassVar[bool] = True
    """Whether a range of event time can be recomputed, because the output depends on the log alone (`Ranged`)."""

    state_name: ClassVar[str | None] = None
    """The words for the rows of a stream's state, as people read them; None where there are none."""

    if TYPE_CHECKING:
        # Fields of the dataclasses, which a property of the base would be the default of.
        @property
        def name(self) -> str: ...

        @property
        def log(self) -> Log: ...

        @property
        def fingerprint(self) -> str: ...

    @property
    def sources(self) -> tuple[Log, ...]:
        """The logs that sources fill and that the definition reads, directly or through other definitions."""
        return self.log.sources

    @property
    def stages(self) -> tuple[Self, ...]:
        """The definitions of this kind that are computed together, the first one first and this one last."""
        return (self,)

    @property
    def known_by(self) -> tuple[str, ...]:
        """The columns of the log by which the definition knows a record again that is taken back."""
        return tuple(self.log.columns)

    @property
    def before(self) -> tuple[Any, ...]:
        """The definitions whose panes or productions this one reads; none where it reads logs of sources alone."""
        return tuple(log.of for log in self.log.parts if isinstance(log, Panes | Productions))

    def with_set_aside(self, reasons: Reasons) -> Self:
        """Return the definition that rejects these records before anything else, and no others that were set aside."""
        # The class may be a user's, and only the user knows how to make one.
        made = copy.copy(self)
        object.__setattr__(made, "set_aside", reasons)
        return made


class Ranged(Definition):
    """A definition whose ranges of event time can be recomputed, because the output depends on the log alone."""

    def closed_until(self, watermark: int) -> int:
        """Return the event time up to which nothing changes any more at a watermark, in microseconds."""
        return watermark

    def open_from(self, watermark: int) -> int:
        """Return the event time from which on a backfill has to leave the definition to its stream, in microseconds."""
        return END_OF_TIME

    if TYPE_CHECKING:

        @property
        def each(self) -> Several[ElementWise]: ...

        @property
        def keep(self) -> Condition | None: ...

        @property
        def columns(self) -> Mapping[str, str]: ...

        @property
        def results(self) -> Mapping[str, str]: ...

        @property
        def meaning(self) -> dict[str, Any]: ...


class Windowless(Ranged):
    """A definition that gives rows of records and has no windows whose answers it would keep."""
