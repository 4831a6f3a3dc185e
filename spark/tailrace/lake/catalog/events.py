"""Define the notices about events in the tables: publications, runs, and the progress of answers.

A lake passes each notice to its single listener (`Lake.tell`), on the thread that did the work. A notice describes an
event but never contains rows of a table. The listener is optional: no result depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tailrace.lake.catalog.run import Run


class Outcome(Enum):
    """The outcome of an attempt to publish a commit."""

    PUBLISHED = "published"
    MOVED = "moved"
    """The table had changed, so nothing was published; the writer tries again on the table's new snapshot (rule X1)."""
    FENCED = "fenced"
    """Another writer had taken the table's lease, so this writer does not try again to publish (rule X1)."""


@dataclass(frozen=True)
class Publication:
    """An attempt to move a table's main branch to a writer's commit.

    `writer` is the kind of writer: a stream, a backfill, a follower (`follow`), or a computation that claims ids
    (`claim`).
    """

    table: str
    writer: str
    outcome: Outcome
    token: int | None = None


@dataclass(frozen=True)
class AnswersAdvanced:
    """A pipeline's answers now include all panes in the pipeline's ledger up to epoch `epoch`."""

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
    """A stream could not merge small files of a table, and continues without merging; `why` is a readable message."""

    table: str
    why: str


@dataclass(frozen=True)
class RunRecorded:
    """The beginning or the end of a run was recorded in the pipeline's table of runs."""

    pipeline: str
    run: Run


@dataclass(frozen=True)
class DefinitionDropped:
    """A stream stopped folding a definition, because another process folds the definition or one of its inputs.

    `left` is the number of definitions that the stream still folds.
    """

    definition: str
    reason: str
    left: int


@dataclass(frozen=True)
class EngineSwitched:
    """A stream switched to another engine for a definition, and will use this engine until the stream is restarted.

    `why` is a readable message with the reason.
    """

    definition: str
    engine: str
    why: str


@dataclass(frozen=True)
class RecordsSetAside:
    """A stream set aside the records that made the fold of an epoch fail; `why` is the first error."""

    definition: str
    epoch: int
    records: int
    why: str


@dataclass(frozen=True)
class SourceLost:
    """A stream that reads several logs failed to read one log's source, and continues without this source.

    `why` is a readable message.
    """

    log: str
    why: str


@dataclass(frozen=True)
class SourceBack:
    """A stream can read a lost source again, and continues from the source position that is recorded in the log."""

    log: str


UNREAD = ("changed", "moved", "hidden")
"""The kinds of landing files that a stream misses or reads twice.

If a file was changed after the stream read it, the stream does not read the new contents. A moved file is read twice. A
hidden file is never read.
"""


@dataclass(frozen=True)
class FolderChecked:
    """A stream checked the landing folder of a log, and found files that the stream misses or reads twice.

    `changed` lists the files that were changed after the stream had read them. `moved` lists the renamed files, each as
    a pair of the file's old and new name. Each changed or moved file is reported once. `counts` has the current number
    of files of each kind (`UNREAD`); kinds without files are left out.
    """

    log: str
    changed: tuple[str, ...]
    moved: tuple[tuple[str, str], ...]
    counts: Mapping[str, int]


@dataclass(frozen=True)
class NearName:
    """A log's records have an unknown `field`, which is dropped, and lack a `column` that has almost the same name."""

    log: str
    field: str
    column: str


def unread_files(counts: Mapping[str, int], before: str = ", ") -> str:
    """Return `before` and the counts of a landing folder's unread files as text, or an empty text if there are no
    counts.

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
    """Ignore a notice. This is the listener of a lake that has no other listener."""
