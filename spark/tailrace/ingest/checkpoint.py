"""Repair Spark's checkpoint, which stores how far a query has read its sources.

If the checkpoint and the commits of the logs differ, the commits are authoritative. Each commit of a log records the id
of the query, the number of the micro-batch, and the source's offset after the micro-batch. If a checkpoint is lost,
damaged, older than the log or ahead of the log, it is rewritten from the log's last commit. The stream then continues
without reading a record twice and without skipping a record (rules X2 and X3).

Each writer has a separate checkpoint folder, named after the token of its lease. So if a writer has lost its lease but
has not noticed the loss yet, it does not write to files that the next writer reads (rule X1).

Files are accessed through Hadoop's file system, as Spark itself does. On a local disk, Hadoop's checksums reveal a
truncated file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tailrace.ingest.checkpoint_version import VERSION
from tailrace.model.base.errors import TailraceError

NOT_READ = "-"
"""Spark's notation for the offset of a source from which nothing has been read yet."""

_PLAN = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
_DONE = '{"nextBatchWatermarkMs":0}'
_REBUILT, _REPLACED = ".rebuilt", ".replaced"
_COMPACTED = 10
"""The number of batches after which Spark compacts the log of the files that a query has read.

To compact this log, Spark writes all entries so far to one file.
"""

_TAIL = 1 << 16
"""The number of bytes in the first attempt to read the end of a compacted file; each further attempt reads more."""


_SAFE = "/:@!$&'()*+,;=~"
"""The characters that are not percent-encoded in the path of a URI."""


class CheckpointError(TailraceError, ValueError):
    """The error for a checkpoint file that is damaged or missing."""


@dataclass(frozen=True)
class ReadPosition:
    """The position up to which a query has read its sources, according to the last commits of the logs.

    `offsets` contains one offset per source, in the order of the query's sources. The offset of a source from which
    nothing has been read is `NOT_READ`.
    """

    query: str
    batch: int
    offsets: tuple[str, ...]


class Checkpoint:
    """The checkpoint of one query, which is a folder in any file system that Spark supports."""

    def __init__(self, spark: SparkSession, folder: str, sources: int = 1) -> None:
        self.folder, self.sources = folder, sources
        jvm: Any = spark._jvm
        # Look up the Java classes only once, because each part of a dotted name costs a call to the JVM.
        self._hadoop_path: Any = jvm.org.apache.hadoop.fs.Path
        self._io: Any = jvm.org.apache.commons.io.IOUtils
        # `_jsc` is private, but PySpark has no public access to Hadoop's configuration.
        self._files = self._path().getFileSystem(spark._jsc.hadoopConfiguration())

    @classmethod
    def take_over(cls, spark: SparkSession, place: str, token: int, sources: int = 1) -> Checkpoint:
        """Take over the previous writer's checkpoint for a new writer.

        `token` is the token of the new writer's lease, and `sources` is the number of sources that the new writer
        reads. The folder is moved, not copied. If the previous writer is still running, it then writes to a folder that
        no other process reads.
        """
        ours = cls(spark, f"{place}/{token}", sources)
        earlier = [found for found in ours._numbered(ours._path().getParent()) if found < token]
        for before in sorted(earlier, reverse=True):
            if ours._moved(ours._sibling(str(before))):
                break
        for before in earlier:
            for end in ("", _REBUILT, _REPLACED):
                ours._files.delete(ours._sibling(f"{before}{end}"), True)
        return ours

    @property
    def query(self) -> str:
        """The id of the query. If there is no checkpoint, the id is an empty string.

        Raises `CheckpointError` if the file with the id is damaged.
        """
        if not self._files.exists(self._path("metadata")):
            return ""
        found = _parsed("metadata", self._read("metadata"))
        if not isinstance(found, dict) or "id" not in found:
            raise CheckpointError("metadata: it does not name the query's id")
        return str(found["id"])

    def offsets(self, batch: int) -> tuple[str, ...]:
        """Read the offsets of the sources at the end of a micro-batch, in the order of the query's sources.

        Raises `CheckpointError` if the offsets are missing.
        """
        return tuple(self._lines(f"offsets/{batch}", 2 + self.sources)[2:])

    def files(self, source: int, after: str, upto: str) -> list[str]:
        """List the files that Spark recorded as read between two offsets of a source.

        The result has Spark's names of the files. Raises `CheckpointError` if a part of Spark's log of files is
        missing.
        """
        names = []
        for number in range(_files_taken(after) + 1, _files_taken(upto) + 1):
            compacted = (number + 1) % _COMPACTED == 0
            name = f"sources/{source}/{number}{'.compact' if compacted else ''}"
            lines = self._last_entries(name, number) if compacted else self._lines(name)[1:]
            names += [_plain_name(_parsed(name, line)["path"]) for line in lines if line]
        return names

    def times(self, source: int) -> dict[str, int]:
        """Return the modification time that Spark saw for each file that was read from a source.

        The result maps Spark's name of a file to the file's modification time, in the order in which the files were
        read. A time is in milliseconds, or 0 if it is unknown. If the source is a topic, the dict is empty. Raises
        `CheckpointError` if a part of Spark's log of files is missing.
        """
        folder = f"sources/{source}"
        names = self._names(self._path(folder))
        last = max(
            (int(name) for name in (one.removesuffix(".compact") for one in names) if name.isdigit()), default=-1
        )
        found = dict[str, int]()
        for name in _logs_of_files(last):
            entries = ",".join(filter(None, self._read(f"{folder}/{name}").split("\n")[1:]))
            for entry in _parsed(name, f"[{entries}]"):
                if isinstance(entry.get("path"), str):
                    found.setdefault(_plain_name(entry["path"]), int(entry["timestamp"]))
        return found

    def _last_entries(self, name: str, number: int) -> list[str]:
        """Read the entries of batch `number` from the end of a compacted file, in which this batch is the last one."""
        own, size = f'"batchId":{number}}}', _TAIL
        while True:
            text = self._read(name, size)
            lines = text.split("\n")
            if lines[0] == VERSION or not lines[1:] or not lines[1].endswith(own):
                return [line for line in lines if line.endswith(own)]
            size *= 8

    def flaw(self, position: ReadPosition) -> str | None:
        """Describe how the checkpoint contradicts the last commits of the logs.

        Returns None if the query can continue from the checkpoint.
        """
        try:
            if not self.query:
                return "is lost, or was that of a stream of other logs"
            if self.query != position.query:
                return "is another query's"
            planned, done = (max(self._numbered(self._path(kind)), default=-1) for kind in ("offsets", "commits"))
            if planned < position.batch:
                return "is older than the log"
            if done > position.batch or planned > position.batch + 1:
                return "is ahead of the log"
            before = len(self._lines(f"offsets/{position.batch}")) - 2
            if 0 < before != self.sources:
                return f"is that of a stream of {before} log{'s' * (before > 1)}, and this one reads {self.sources}"
            if self.offsets(position.batch) != position.offsets:
                return "says otherwise than the log what was read"
            # Read the files that Spark reads when the query starts. A damaged or missing file raises `CheckpointError`.
            last = [self.offsets(batch) for batch in range(max(0, planned - 1), planned + 1)][-1]
            if done >= 0:
                self._lines(f"commits/{done}", 2)
            for source, offset in enumerate(last):
                for name in _logs_of_files(_files_taken(offset)):
                    self._lines(f"sources/{source}/{name}")
        except CheckpointError as error:
            return f"is damaged ({error})"
        return None

    def rebuild(self, position: ReadPosition, files: Sequence[Mapping[str, int]]) -> None:
        """Write a new checkpoint for the position up to which the sources have been read.

        `files` has one dict per source. The dict maps Spark's name of each file that was read so far to the file's
        modification time.

        The old checkpoint is kept next to the new checkpoint, with `.replaced` at the end of its name.
        """
        made, aside = (self._hadoop_path(self.folder + end) for end in (_REBUILT, _REPLACED))
        known = self._known_times()
        self._files.delete(made, True)
        self._write(made, "metadata", [json.dumps({"id": position.query})])
        # Write the last two batches: Spark requires that both are present, although it uses only the last one.
        for batch in range(max(0, position.batch - 1), position.batch + 1):
            self._write(made, f"offsets/{batch}", [VERSION, _PLAN, *position.offsets])
            self._write(made, f"commits/{batch}", [VERSION, _DONE])
        for source, (offset, read) in enumerate(zip(position.offsets, files, strict=True)):
            times = {path: known.get(_plain_name(path)) or read[path] for path in sorted(read)}
            entries = [json.dumps({"path": path, "timestamp": at, "batchId": 0}) for path, at in times.items()]
            for place, name in enumerate(_logs_of_files(_files_taken(offset))):
                self._write(made, f"sources/{source}/{name}", [VERSION, *(entries if place == 0 else ())])
        if self._files.exists(self._path()):
            self._files.delete(aside, True)
            self._files.rename(self._path(), aside)
        self._files.rename(made, self._path())

    def _known_times(self) -> dict[str, int]:
        """Read the modification times of files from the old checkpoint, as far as that checkpoint can be read."""
        found = dict[str, int]()
        for source in self._numbered(self._path("sources")):
            with suppress(CheckpointError):
                found |= self.times(source)
        return found

    def remove(self) -> None:
        """Remove the checkpoint. After that, the query starts from the first record of each of its sources."""
        self._files.delete(self._path(), True)

    def _path(self, name: str = "") -> Any:
        return self._hadoop_path(f"{self.folder}/{name}" if name else self.folder)

    def _sibling(self, name: str) -> Any:
        return self._hadoop_path(self._path().getParent(), name)

    def _moved(self, before: Any) -> bool:
        """Rename an earlier writer's folder to this writer's folder; return False if this was not possible."""
        try:
            # Delete an old folder with this writer's token, which may exist after a log was restored. If it were not
            # deleted, the rename would move `before` into it.
            self._files.delete(self._path(), True)
            return bool(self._files.rename(before, self._path()))
        except Py4JJavaError:
            return False

    def _numbered(self, folder: Any) -> list[int]:
        """Return the names in a folder that consist of digits, as numbers of micro-batches or tokens of writers."""
        return [int(name) for name in self._names(folder) if name.isdigit()]

    def _names(self, folder: Any) -> list[str]:
        """Return the names of the files in a folder; the result is empty if the folder does not exist."""
        entries = self._files.listStatus(folder) if self._files.exists(folder) else ()
        return [str(one.getPath().getName()) for one in entries]

    def _lines(self, name: str, count: int | None = None) -> Sequence[str]:
        """Read a file whose first line is a version and whose other lines are JSON.

        Raises `CheckpointError` if the file has other content.
        """
        lines = self._read(name).split("\n")
        if lines[0] != VERSION or (count is not None and len(lines) != count):
            raise CheckpointError(f"{name}: it is cut off, or of another version of Spark")
        for line in lines[1:]:
            if line != NOT_READ:
                _parsed(name, line)
        return lines

    def _read(self, name: str, last: int | None = None) -> str:
        """Read a whole file, or only its `last` bytes."""
        try:
            stream = self._files.open(self._path(name))
            try:
                if last is not None:
                    stream.seek(max(0, self._files.getFileStatus(self._path(name)).getLen() - last))
                return str(self._io.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise CheckpointError(f"{name}: {error.java_exception.getMessage()}") from None

    def _write(self, folder: Any, name: str, lines: Sequence[str]) -> None:
        stream = self._files.create(self._hadoop_path(folder, name))
        try:
            stream.write(bytearray("\n".join(lines), "utf-8"))
        finally:
            stream.close()


def _plain_name(path: str) -> str:
    """Convert a URI from Spark's log of files to the name that Spark uses for the file elsewhere.

    >>> _plain_name("file:///drop/a%20b.json"), _plain_name("s3a://bucket/a%25.json")
    ('file:/drop/a b.json', 's3a://bucket/a%.json')
    """
    return re.sub(r"^file:///", "file:/", unquote(path))


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"{name}: {error}") from None


def _files_taken(offset: str) -> int:
    """Return the number of the last batch of files that an offset covers; -1 if no files were read up to this
    offset.
    """
    if offset == NOT_READ:
        return -1
    found = _parsed("the source's offset", offset)
    return int(found.get("logOffset", -1)) if isinstance(found, dict) else -1


def _logs_of_files(last: int) -> list[str]:
    """Return the names of the files that make up Spark's log of files: the last compacted file, and all files after it.

    >>> _logs_of_files(-1), _logs_of_files(1), _logs_of_files(9), _logs_of_files(11)
    ([], ['0', '1'], ['9.compact'], ['9.compact', '10', '11'])
    """
    first = (last + 1) // _COMPACTED * _COMPACTED - 1
    return [f"{first}.compact"] * (first >= 0) + [str(batch) for batch in range(first + 1, last + 1)]


def file_names(sources: Mapping[str, int]) -> dict[str, int]:
    """Return a dict that maps Spark's names of files to the modification times of the files.

    `sources` maps the names under which the log stores the files to the same modification times. In Spark's names,
    special characters are percent-encoded. If Spark could not read a file at all, the log stores the file's name
    without percent-encoding. So the dict contains each name twice: with percent-encoding and without percent-encoding.

    >>> file_names({"file:/drop/a b.json": 7})
    {'file:///drop/a b.json': 7, 'file:///drop/a%20b.json': 7}
    """
    found = dict[str, int]()
    for source, written in sources.items():
        name = re.sub(r"^file:/(?!/)", "file:///", source)
        found |= dict.fromkeys((name, quote(name, safe=_SAFE) if "%" not in name else name), written)
    return found
