"""The interface of an engine to a fold: the state, the step, and the writing of the ledger's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PANE, PRODUCTION, REJECTED
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import UNANSWERED

FIRED = ("early", "on_time", "late")
"""The timings of the panes that a stream fires; only a backfill writes corrections."""

REASONS = ("expired", "finished")
"""The reasons for a late record: its window is out of reach, or its trigger has finished (rules M1, M4)."""


@dataclass(frozen=True)
class EpochCounts:
    """The counts of the rows that an epoch writes: panes by timing, late records by reason, a map's productions.

    `unanswered` counts the panes with a result that is null as no value of its type is right (rule X7).
    `open` is the number of windows open after the epoch. A computation counts its `productions`, those `claimed` by
    another, the records that it `fed_back`, and the records that came too `late`.
    """

    retractions: int = 0
    rejected: int = 0
    timings: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    open: int | None = None
    productions: int = 0
    claimed: int = 0
    fed_back: int = 0
    late: int = 0
    unanswered: int = 0

    @classmethod
    def of_groups(cls, groups: Iterable[Mapping[str, Any]], open: int) -> EpochCounts:
        """Make the counts of an epoch of windows from groups of its rows, as `counted` gives them."""
        counts: Counter[tuple[str, bool | None, str | None, str | None]] = Counter()
        unanswered = 0
        for group in groups:
            counts[group["kind"], group["retraction"], group["timing"], group["reason"]] += group["rows"]
            unanswered += 0 if group["retraction"] else group.get(UNANSWERED, 0)
        return cls(
            sum(n for (kind, taken, *_), n in counts.items() if kind == PANE and taken),
            sum(n for (kind, *_), n in counts.items() if kind == REJECTED),
            {each: counts.get((PANE, False, each, None), 0) for each in FIRED},
            {each: sum(n for (kind, _, _, r), n in counts.items() if (kind, r) == (LATE, each)) for each in REASONS},
            open,
            unanswered=unanswered,
        )

    @classmethod
    def of_kinds(cls, kinds: Mapping[str, int]) -> EpochCounts:
        """Make the counts of an epoch from its numbers of rows by the ledger's kinds, where none is of a window."""
        productions, claimed, fed_back, late, rejected = (
            kinds.get(kind, 0) for kind in (PRODUCTION, CLAIMED, FEEDBACK, LATE, REJECTED)
        )
        return cls(rejected=rejected, productions=productions, claimed=claimed, fed_back=fed_back, late=late)


APART = ("kind", "retraction", "timing", "reason")
"""The columns of a ledger by which the rows of an epoch of windows are counted."""


def counted(rows: pa.Table) -> list[dict[str, Any]]:
    """Count the rows of an epoch, in the columns of its ledger: a group for each combination of `APART`, and `rows`.

    Where the ledger has the column `unanswered`, so has each group: how many rows have a value there.
    """
    own = [UNANSWERED] if UNANSWERED in rows.column_names else []
    counts = [([], "count_all"), *((name, "count") for name in own)]
    groups = rows.group_by(list(APART)).aggregate(counts).rename_columns([*APART, "rows", *own])
    found: list[dict[str, Any]] = groups.to_pylist()
    return found


class SideState(Protocol):
    """A state between two epochs, and the clock of the last one."""

    @property
    def clock(self) -> Clock | None: ...

    def forget(self) -> None:
        """Free the memory of this state alone, once the state after it is computed."""


State = TypeVar("State", bound=SideState)
Consumed = TypeVar("Consumed")
Stepped = TypeVar("Stepped")


class Side(Protocol[State, Consumed, Stepped]):
    """A stage on one engine, by its types of states, of bundles prepared for the step, and of stepped epochs."""

    choice: EngineChoice

    @property
    def direct(self) -> bool:
        """Whether this process computes, without Spark."""

    @property
    def holds(self) -> bool:
        """Whether open windows can hold a later stage's watermark at all (rule T3)."""

    def nothing(self, generation: int) -> State:
        """Return the state before the first epoch."""

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> State:
        """Restore the state after the epoch of `clock` from the ledger's partials, as of a snapshot that has them."""

    def consume(self, bundle: Any, state: State) -> Consumed:
        """Prepare a bundle, which may come from either engine, for `step`."""

    def step(self, state: State, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch; return its result, which has the `state` after it."""

    def write(self, stepped: Stepped, branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        """Write an epoch's rows to the ledger's branch, to be published in a commit with these properties."""

    def onward(self, state: State) -> int:
        """Return the bound, in microseconds, of a later stage's watermark after this state's epoch (rule T3)."""

    def due(self, state: State, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        """Return when, in microseconds of processing time, an open window may fire without a record; None if none."""

    def passed(self, stepped: Stepped) -> Any:
        """Return the records that a later stage reads of a stepped epoch, as a bundle."""

    def passed_again(self, epoch: int, after: int | None = None) -> Any:
        """Return the records that a later stage reads of an epoch of the ledger, as a bundle; of all since `after`."""

    def close(self) -> None:
        """Free the open windows once the fold has ended or goes on elsewhere."""


AnySide: TypeAlias = Side[Any, Any, Any]
"""A side whose engine and kind do not matter to who holds it."""
