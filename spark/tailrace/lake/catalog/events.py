"""Define the notices about events in the tables: publications, runs, and the progress of answers.

A lake passes each notice to its single listener (`Lake.tell`), on the thread that did the work. A notice describes a
commit and never has its rows, and nothing depends on whether anyone listens.
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
    """The table had changed, so nothing was published; the writer tries again on the new snapshot (rule X1)."""
    FENCED = "fenced"
    """Another writer had taken the lease, so the publication is not tried again (rule X1)."""


@dataclass(frozen=True)
class Publication:
    """An attempt to move a table's main branch to a writer's commit.

    `writer` is the kind of writer: a stream, a backfill, a follower (`follow`) or a claimant of a registry (`claim`).
    """

    table: str
    writer: str
    outcome: Outcome
    token: int | None = None


@dataclass(frozen=True)
class AnswersAdvanced:
    """The answers of a pipeline have caught up with this epoch of its ledger."""

    pipeline: str
    epoch: int


@dataclass(frozen=True)
class FilesCompacted:
    """A stream merged `files` small files of a table into `into` files."""

    table: str
    files: int
    into: int


@dataclass(frozen=True)
class CompactionFailed:
    """A stream could not merge small files of a table, and goes on without; `why` is for people."""

    table: str
    why: str


@dataclass(frozen=True)
class RunRecorded:
    """A run began or ended, and is in the pipeline's table of runs."""

    pipeline: str
    run: Run


@dataclass(frozen=True)
class DefinitionDropped:
    """A stream stopped folding a definition, because another process folds it, or a definition that it reads.

    `left` is the number of definitions that the stream still folds.
    """

    definition: str
    reason: str
    left: int


@dataclass(frozen=True)
class EngineSwitched:
    """A stream switched to another engine for a definition, until it is restarted; `why` is for people."""

    definition: str
    engine: str
    why: str


@dataclass(frozen=True)
class RecordsSetAside:
    """A stream set records aside that made the fold of an epoch fail; `why` is the first error."""

    definition: str
    epoch: int
    records: int
    why: str


@dataclass(frozen=True)
class SourceLost:
    """A stream of several logs goes on without the source of one log, which it failed to read; `why` is for people."""

    log: str
    why: str


@dataclass(frozen=True)
class SourceBack:
    """A stream reads a lost source again, from the position in its log."""

    log: str


UNREAD = ("changed", "moved", "hidden")
"""The kinds of files in a landing folder that a stream misses or reads twice.

A changed file is not read again after its change; a moved file is read twice; a hidden file is never read.
"""


@dataclass(frozen=True)
class FolderChecked:
    """A stream checked the landing folder of a log, and found files that it misses or reads twice.

    `changed` has the files that were changed since they were read; `moved` has the renamed files, as `(before, now)`;
    each file is reported once. `counts` has the current number of files of each kind (`UNREAD`), without zeros.
    """

    log: str
    changed: tuple[str, ...]
    moved: tuple[tuple[str, str], ...]
    counts: Mapping[str, int]


@dataclass(frozen=True)
class NearName:
    """Records of a log have a field that is dropped, and lack a column with nearly the same name."""

    log: str
    field: str
    column: str


def unread_files(counts: Mapping[str, int], before: str = ", ") -> str:
    """Write the counts of a landing folder's unread files, after `before`; an empty text if there are none.

    >>> unread_files({"changed": 2, "hidden": 1}), unread_files({})
    (', files of the landing folder: 2 changed, 1 hidden', '')
    """
    numbers = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    return f"{before}files of the landing folder: {numbers}" if numbers else ""


Notice: TypeAlias = (
    "Publication | AnswersAdvanced | FilesCompacted | CompactionFailed | RunRecorded | DefinitionDropped "
    "| EngineSwitched | RecordsSetAside | SourceLost | SourceBack | FolderChecked | NearName"
)


def ignore_notice(notice: Notice) -> None:
    """Ignore a notice, for a lake without a listener."""
