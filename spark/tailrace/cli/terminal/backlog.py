"""The backlog of a stream: how much of its input was taken and how much there is, to estimate the time left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class FolderBacklog:
    """The backlog of a folder: the files that were taken, by the checkpoint, and the files that there are.

    Only local folders are counted; counting others would cost requests.
    """

    folder: str
    checkpoint: str
    _seen: dict[str, int] = field(default_factory=dict)

    def __call__(self) -> tuple[int, int] | None:
        place = urlparse(self.folder)
        if place.scheme not in ("", "file") or "://" in self.checkpoint:
            return None
        folder = Path(unquote(place.path) if place.scheme else self.folder)
        there = sum(1 for path in folder.rglob("*") if path.is_file() and not _hidden(path.relative_to(folder)))
        taken = self._taken()
        return taken, max(taken, there)

    def _taken(self) -> int:
        """Count the files in the checkpoint's list, to which Spark adds a log before each epoch."""
        try:
            logs = [path for path in Path(self.checkpoint, "sources", "0").iterdir() if not path.name.startswith(".")]
        except OSError:
            return 0
        # A compacted log holds all entries of the logs before it.
        compacted = max((int(p.stem) for p in logs if p.suffix == ".compact" and p.stem.isdigit()), default=-1)
        names = {p.name for p in logs if p.suffix == ".compact" and p.stem == str(compacted)}
        names |= {p.name for p in logs if p.name.isdigit() and int(p.name) > compacted}
        for log in logs:
            if log.name in names and log.name not in self._seen:
                self._seen[log.name] = _entries(log)
        return sum(self._seen[name] for name in names)


@dataclass
class TopicBacklog:
    """The backlog of a Kafka topic, in offsets of all its partitions, added up: those reached, and the latest."""

    query: StreamingQuery | None = None

    def __call__(self) -> tuple[int, int] | None:
        progress: Any = self.query.lastProgress if self.query is not None else None
        if not progress:
            return None
        source = progress["sources"][0]
        read, latest = _total(source.get("endOffset")), _total(source.get("latestOffset"))
        return None if read is None or latest is None else (read, latest)


def _total(offsets: Any) -> int | None:
    """Add up the offsets of all partitions; None where `offsets` has none."""
    by_topic = json.loads(offsets) if isinstance(offsets, str) else offsets
    if not isinstance(by_topic, dict):
        return None
    return sum(int(offset) for partitions in by_topic.values() for offset in partitions.values())


def _entries(log: Path) -> int:
    """Count the files that a log of the checkpoint names: a line of JSON each, after a line with the version."""
    return sum(1 for line in log.read_text().splitlines() if line.startswith("{"))


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
