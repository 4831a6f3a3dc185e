"""Notices of what happens to the tables, told as it happens: publications, runs, and the answers' progress.

A lake tells its one listener (`Lake.tell`), on the thread that did the work. A notice is a few words about a commit,
never its rows, and nothing depends on whether anyone listens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tailrace.lake.catalog.run import Run


class Outcome(Enum):
    """The outcome of a publication."""

    PUBLISHED = "published"
    MOVED = "moved"
    """The table had moved: nothing was published; the writer builds on the new snapshot and tries again (rule X1)."""
    FENCED = "fenced"
    """Another writer had taken the lease: the publication is not tried again (rule X1)."""


@dataclass(frozen=True)
class Publication:
    """A try to move a table's main branch to a writer's commit.

    `writer` is the kind of writer: a stream, a backfill, a follower (`follow`) or a claimant of a registry (`claim`).
    """

    table: str
    writer: str
    outcome: Outcome
    token: int | None = None


@dataclass(frozen=True)
class Followed:
    """The answers of a pipeline now stand for this epoch of its ledger."""

    pipeline: str
    epoch: int


@dataclass(frozen=True)
class Compacted:
    """A stream wrote small files of a table together: so many of them, into so many."""

    table: str
    files: int
    into: int


@dataclass(frozen=True)
class NotCompacted:
    """A stream could not write small files of a table together, and goes on without; `why` is for people."""

    table: str
    why: str


@dataclass(frozen=True)
class Noted:
    """A row of a pipeline's table of runs: a run began, or ended."""

    pipeline: str
    run: Run


@dataclass(frozen=True)
class Dropped:
    """A stream stopped folding a definition, since another process folds it or a definition that it reads.

    `left` is the number of definitions that the stream still folds.
    """

    definition: str
    reason: str
    left: int


@dataclass(frozen=True)
class WentOver:
    """A stream folds a definition on another engine from here on, until it is restarted; `why` is for people."""

    definition: str
    engine: str
    why: str


@dataclass(frozen=True)
class Poisoned:
    """A stream set records aside with which an epoch of a definition could not be folded; `why` is the first error."""

    definition: str
    epoch: int
    records: int
    why: str


@dataclass(frozen=True)
class SourceLost:
    """A stream of several logs goes on without the source of one, which it failed to read; `why` is for people."""

    log: str
    why: str


@dataclass(frozen=True)
class SourceBack:
    """A source that a stream had gone on without is read again, from where its log says."""

    log: str


UNREAD = ("changed", "moved", "hidden")
"""The kinds of files in a landing folder that a stream does not read as they are now.

A file was changed after it was read, and is not read again; or it was moved after it was read, and is read twice; or
its name hides it.
"""


@dataclass(frozen=True)
class FolderLooked:
    """A stream looked through the landing folder of a log, and found files that it does not read as they are now.

    `changed` are files that were changed since they were read, and `moved` those that have another name, as
    `(before, now)`; each is told once. `counts` are of all that are there now, by their kinds (`UNREAD`), but zeros.
    """

    log: str
    changed: tuple[str, ...]
    moved: tuple[tuple[str, str], ...]
    counts: Mapping[str, int]


@dataclass(frozen=True)
class NearName:
    """Records of a log have a field that is dropped, and lack a column of nearly the same name."""

    log: str
    field: str
    column: str


def unread_files(counts: Mapping[str, int], before: str = ", ") -> str:
    """Write how many files of a landing folder are not read as they are now, after `before`; nothing without any.

    >>> unread_files({"changed": 2, "hidden": 1}), unread_files({})
    (', files of the landing folder: 2 changed, 1 hidden', '')
    """
    numbers = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    return f"{before}files of the landing folder: {numbers}" if numbers else ""


Notice: TypeAlias = (
    "Publication | Followed | Compacted | NotCompacted | Noted | Dropped | WentOver | Poisoned | SourceLost "
    "| SourceBack | FolderLooked | NearName"
)


def untold(notice: Notice) -> None:
    """Ignore a notice: nobody listens."""
