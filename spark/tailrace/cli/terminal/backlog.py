"""Count how much input a stream has read, and how much input there is in all, to estimate the remaining time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class FolderBacklog:
    """The progress of a stream through its folders, as the number of files already read and the number of all files.

    The checkpoint lists the files that have been read.

    `folders` are the folders of the sources of Spark's streaming query, in order. Calling the object returns both
    counts. The call returns None unless all folders and the checkpoint are on this machine, because listing remote
    folders would cost requests.
    """

    folders: Sequence[str]
    checkpoint: str
    _seen: dict[Path, int] = field(default_factory=dict)

    def __call__(self) -> tuple[int, int] | None:
        places = [urlparse(folder) for folder in self.folders]
        if any(place.scheme not in ("", "file") for place in places) or "://" in self.checkpoint:
            return None
        taken = [self._taken(source) for source in range(len(places))]
        there = [_files(Path(unquote(place.path) if place.scheme else folder))
                 for place, folder in zip(places, self.folders, strict=True)]  # fmt: skip
        return sum(taken), sum(map(max, taken, there))

    def _taken(self, source: int) -> int:
        """Count the files of one source that the checkpoint lists as read.

        Before each epoch, Spark adds to the checkpoint a list of the files that belong to the epoch.
        """
        folder = Path(self.checkpoint, "sources", str(source))
        try:
            logs = [path for path in folder.iterdir() if not path.name.startswith(".")]
        except OSError:
            return 0
        # A compacted list contains the entries of all earlier lists.
        compacted = max((int(p.stem) for p in logs if p.suffix == ".compact" and p.stem.isdigit()), default=-1)
        paths = {p for p in logs if p.suffix == ".compact" and p.stem == str(compacted)}
        paths |= {p for p in logs if p.name.isdigit() and int(p.name) > compacted}
        for log in paths - self._seen.keys():
            self._seen[log] = _entries(log)
        return sum(self._seen[log] for log in paths)


@dataclass
class TopicBacklog:
    """The progress of a stream through its Kafka topics.

    Calling the object returns two numbers. The first number is the sum of the offsets up to which the stream has read
    each partition. The second number is the sum of the latest offsets of all partitions.
    """

    query: StreamingQuery | None = None

    def __call__(self) -> tuple[int, int] | None:
        progress = self.query.lastProgress if self.query is not None else None
        if not progress:
            return None
        read, latest = 0, 0
        # PySpark's progress objects contain offsets as the text of Python dictionaries; the JSON contains offsets as
        # numbers.
        for source in json.loads(progress.json)["sources"]:
            one, all_of_it = _total(source.get("endOffset")), _total(source.get("latestOffset"))
            if one is None or all_of_it is None:
                return None
            read, latest = read + one, latest + all_of_it
        return read, latest


def _files(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file() and not _hidden(path.relative_to(folder)))


def _total(offsets: Any) -> int | None:
    """Return the sum of the offsets of all partitions, or None if there are no offsets."""
    topics = offsets.values() if isinstance(offsets, dict) else ()
    if not topics or not all(isinstance(partitions, dict) for partitions in topics):
        return None
    return sum(int(offset) for partitions in topics for offset in partitions.values())


def _entries(log: Path) -> int:
    """Count the files in one of the checkpoint's lists. A list has one line of JSON for each file."""
    return sum(1 for line in log.read_text().splitlines() if line.startswith("{"))


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
