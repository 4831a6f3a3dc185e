"""What happens to the tables, told as it happens to whoever watches: publications, runs, and how far `p` follows.

A lake tells its one listener (`Lake.tell`), on the thread that did it. What is told is a few words about a commit,
never its rows, and nothing depends on whether anyone listens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tailrace.lake.catalog.run import Run


class Outcome(Enum):
    """What became of a publication."""

    PUBLISHED = "published"
    MOVED = "moved"
    """The table had moved: nothing of it is there, and it is built on the new snapshot and tried again (rule X1)."""
    FENCED = "fenced"
    """Another writer had taken the lease: it is not tried again (rule X1)."""


@dataclass(frozen=True)
class Publication:
    """A try to move a table's main branch to what a writer wrote; the writer is a stream, a backfill or a follower."""

    table: str
    writer: str
    outcome: Outcome
    token: int | None = None


@dataclass(frozen=True)
class Followed:
    """Table `p` of a pipeline stands for this epoch of its ledger."""

    pipeline: str
    epoch: int


@dataclass(frozen=True)
class Noted:
    """A row of a pipeline's table of runs: a run began, or ended."""

    pipeline: str
    run: Run


@dataclass(frozen=True)
class Dropped:
    """A stream folds a definition no more, for another process does or it reads one like that; so many are left."""

    definition: str
    reason: str
    left: int


@dataclass(frozen=True)
class WentOver:
    """A stream folds a definition on another engine from here on, until it is started anew; `why` is for people."""

    definition: str
    engine: str
    why: str


Notice: TypeAlias = "Publication | Followed | Noted | Dropped | WentOver"


def untold(notice: Notice) -> None:
    """Nobody listens."""
