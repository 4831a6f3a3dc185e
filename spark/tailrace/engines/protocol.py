"""What a fold asks of the engine that it runs on: the state, the step, and how its rows are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tailrace.engines.choose import Choice
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PRODUCTION, REJECTED
from tailrace.model.base.clock import Clock

FIRED = ("early", "on_time", "late")
"""The timings of the panes that a stream fires; a correction is a backfill's."""

REASONS = ("expired", "finished")
"""Why a record was too late: its window is out of reach, or its trigger has finished (rules M1, M4)."""


@dataclass(frozen=True)
class Told:
    """How many rows of each kind an epoch writes: panes by timing, late records by reason, a map's productions.

    `open` is how many windows are open after it. Of a computation there are `productions`, what was `claimed` by
    another, what it `fed_back`, and the records that came too `late`.
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

    @classmethod
    def of_keys(cls, kinds: Mapping[str, int]) -> Told:
        """Say how many rows of each kind the epoch of a computation has."""
        productions, claimed, fed_back, late, rejected = (
            kinds.get(kind, 0) for kind in (PRODUCTION, CLAIMED, FEEDBACK, LATE, REJECTED)
        )
        return cls(rejected=rejected, productions=productions, claimed=claimed, fed_back=fed_back, late=late)


class Side(Protocol):
    """One stage on one engine. States, bundles and what an epoch gave are the engine's own."""

    choice: Choice

    @property
    def direct(self) -> bool:
        """Whether this process writes the commits itself (`lake.commit.branch`)."""

    @property
    def holds(self) -> bool:
        """Whether open windows can hold a later stage's watermark at all (rule T3)."""

    def nothing(self, generation: int) -> Any:
        """The state before the first epoch."""

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> Any:
        """The state that the ledger's partials up to the epoch of `clock` add up to, as of a snapshot that has it."""

    def consume(self, bundle: Any, state: Any) -> Any:
        """Look at a bundle, which comes from either engine."""

    def step(self, state: Any, consumed: Any, clock: Clock) -> Any:
        """Take the open windows through an epoch; what it gave has the `state` after it."""

    def write(self, stepped: Any, branch: Branch, properties: Mapping[str, str]) -> Told:
        """Write the rows of an epoch, to be published in a commit that says this."""

    def onward(self, state: Any) -> int:
        """How far a later stage's watermark may go after the epoch that gave this state (rule T3), in microseconds."""

    def due(self, state: Any, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        """When an open window may fire without a record, in microseconds of processing time; None if none may."""

    def passed(self, stepped: Any) -> Any:
        """What a later stage reads of an epoch, as a bundle."""

    def passed_again(self, epoch: int) -> Any:
        """What a later stage reads of an epoch that the ledger has, as a bundle."""

    def close(self) -> None:
        """Free the open windows: the fold has ended, or goes on elsewhere."""
