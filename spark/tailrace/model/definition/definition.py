"""The base class of definitions, with the properties of a definition that any layer of the package may need.

A kind of definition is a class: `Pipeline`, `Computation`, `Map` or `Join`. The modules in `model/` define what each
kind computes. For each operation on definitions, a layer of the package has a `functools.singledispatch` function with
one implementation per kind. So adding a new kind of definition means adding a class and its implementations of these
functions.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.logs.derived_logs import Panes, Productions
from tailrace.model.logs.log import PANE_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Self

    from tailrace.model.base.conditions import Condition
    from tailrace.model.base.several import Several
    from tailrace.model.definition.record_steps import ElementWise, Reasons
    from tailrace.model.logs.log import Log


class KindError(TailraceError, TypeError):
    """The error for an operation that has no implementation for a kind of definition."""

    def __init__(self, verb: str, definition: object) -> None:
        super().__init__(f"{type(definition).__name__}: no kind of definition that there is a {verb} for; register one")


class Definition:
    """The base class of definitions: a definition has a name, a log that it reads, and a ledger that it writes."""

    kind_name: ClassVar[str]
    """The name of this kind of definition in messages to users."""

    windowed: ClassVar[bool] = False
    """Whether the definition groups records into windows and keeps the current answer of each window."""

    repairs_late: ClassVar[bool] = False
    """Whether a record may be too late for the definition's windows or pairs. If so, a backfill must add the late
    records.
    """

    recomputable: ClassVar[bool] = True
    """Whether the output for a range of event time can be recomputed.

    The output of `Ranged` definitions can be recomputed, because it depends only on the log.
    """

    state_name: ClassVar[str | None] = None
    """The name, in messages to users, for the rows of a stream's state; None if this kind of definition has no
    state.
    """

    log_options: ClassVar[tuple[str, ...]] = ("log",)
    """The names of the options with the logs that the definition reads."""

    if TYPE_CHECKING:
        # Declare these members for type checkers only. At run time, a dataclass would take such a property as the
        # default value of the field with the same name.
        @property
        def name(self) -> str: ...

        @property
        def log(self) -> Log: ...

        @property
        def fingerprint(self) -> str: ...

    @property
    def meaning(self) -> dict[str, Any] | None:
        """The named parts of the definition's meaning; None if the definition has only a fingerprint."""
        return None

    @property
    def used(self) -> frozenset[str]:
        """The columns of the log that the definition uses: their types are part of the definition's meaning.

        By default, a definition uses all columns. Code of a user that receives whole records may use each of them.
        """
        return frozenset(self.log.columns)

    @property
    def former_fingerprint(self) -> str:
        """The fingerprint in lakes of earlier versions: the types of unused columns were part of the meaning, too."""
        return self.fingerprint

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints with which a lake may have stored this definition's meaning."""
        return frozenset((self.fingerprint, self.former_fingerprint))

    def fingerprint_of(self, columns: Collection[str]) -> str:
        """Return the fingerprint of the definition for a reader of its output that uses only these columns."""
        return self.fingerprint

    def passed_on(self, column: str) -> tuple[Log, str] | None:
        """Return the log and the log's column that an output column passes on unchanged; None if there is none."""
        return None

    @property
    def sources(self) -> tuple[Log, ...]:
        """The logs that sources fill and that this definition reads, either directly or through other definitions."""
        return self.log.sources

    @property
    def stages(self) -> tuple[Self, ...]:
        """The definitions of this kind that are computed together with this definition, in order; this definition is
        the last in the tuple.
        """
        return (self,)

    @property
    def known_by(self) -> tuple[str, ...]:
        """The columns of the log by which the definition identifies a retracted record."""
        return tuple(self.log.columns)

    @property
    def before(self) -> tuple[Any, ...]:
        """The definitions whose panes or productions this definition reads; empty if the definition reads only logs of
        sources.
        """
        return tuple(log.of for log in self.log.parts if isinstance(log, Panes | Productions))

    def with_set_aside(self, reasons: Reasons) -> Self:
        """Return a copy of the definition whose first step rejects the records in `reasons`.

        A stream has set these records aside, because every epoch that contained them failed (rule X7). `reasons`
        replaces the set-aside records of the original definition.
        """
        # Copy the object instead of calling its constructor, because the arguments of a user-defined class are unknown
        # here.
        made = copy.copy(self)
        object.__setattr__(made, "set_aside", reasons)
        return made


class Ranged(Definition):
    """A definition whose output depends only on the log, so that a range of event time can be recomputed."""

    def closed_until(self, watermark: int) -> int:
        """Return the event time, in microseconds, before which the output is final when a stream has reached this
        watermark.
        """
        return watermark

    def open_from(self, watermark: int) -> int:
        """Return the event time, in microseconds, from which on a backfill must not change the output.

        From this event time on, only a stream may change the output.
        """
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
    """A definition without windows: it computes output rows from records, and keeps no current answers."""

    @property
    def produced(self) -> Productions[Any]:
        """The definition's output as a log that other definitions can read."""
        columns = {**self.results, PANE_TIME: "timestamp"}
        return Productions(name=self.name, columns=columns, event_time=PANE_TIME, of=self)
