"""Define the sources that Structured Streaming reads: files that land in a folder, and Kafka topics.

For files, the query streams only the names of the files: it uses Spark's `binaryFile` source and never reads the column
with the contents. So the checkpoint records the files of each epoch. The epoch then reads the files with a reader for
their format, and reads only the columns that are needed. Before that, `inspect_files` examines the headers and footers
of the files, without reading records.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from tailrace.ingest.column_slices import open_parquet
from tailrace.ingest.compressed_text import HADOOPS, compression, has_line_over, open_text
from tailrace.ingest.json_values import has_values
from tailrace.ingest.kafka_access import PLAINTEXT, KafkaAccess
from tailrace.ingest.parquet_reader import ParquetColumns
from tailrace.model.base.errors import TailraceError
from tailrace.model.logs.csv_records import CsvRecords, is_blank
from tailrace.model.logs.log import Log

Format: TypeAlias = Literal["json", "csv", "parquet", "avro"]
_NAMES = "path string, modificationTime timestamp, length bigint, content binary"

LONGEST = 64 * 2**20
"""The maximum length of a line in bytes, unless the log allows larger records. A file with a longer line is not
read.
"""


def check_folders(log: Log, source: Files | Kafka) -> None:
    """Raise `SourceError` if a log takes columns from the names of folders, and the source has no files."""
    if log.folders and not isinstance(source, Files):
        raise SourceError(
            f"log {log.name}: folders = {log.folders!r} are read for files only: leave them out, and have "
            "the producer write the columns into the records"
        )


FORMATS: tuple[Format, ...] = ("json", "csv", "parquet", "avro")

TYPED = ("parquet", "avro")
"""The formats whose files have a schema. Python alone reads these files."""


class SourceError(TailraceError, ValueError):
    """The error for a source that cannot be read at all.

    A single bad record does not raise this error; it is rejected.
    """


@dataclass(frozen=True)
class Files:
    """A source of files that land in a folder; the files are read in the order of their modification times.

    `per_epoch` is the maximum number of files in an epoch. A JSON file has one object per line; a CSV file has a header
    line unless the log says otherwise. The name of the folder is taken literally, including brackets and stars.
    """

    folder: str
    format: Format = "json"
    per_epoch: int | None = None

    def stream(self, spark: SparkSession) -> DataFrame:
        """Open a streaming frame of file names (column `path`). Raises `SourceError` if the folder does not exist."""
        if self.format not in FORMATS:
            raise SourceError(f"format {self.format!r}: expected one of {', '.join(FORMATS)}; pass --format json")
        if not _exists(self.folder):
            raise SourceError(f"the folder {self.folder} is not there: make it, or pass another with --from")
        reader = spark.readStream.format("binaryFile").schema(_NAMES).option("recursiveFileLookup", "true")
        # Raise the maximum age of files. With the default of a week, Spark would silently skip files with an older
        # modification time.
        reader = reader.option("maxFileAge", "36500d")
        # Let Spark ignore a file of the epoch that has been removed in the meantime. Later, `inspect_files` reports
        # this file.
        reader = reader.option("ignoreMissingFiles", "true")
        if self.per_epoch:
            reader = reader.option("maxFilesPerTrigger", self.per_epoch)
        return reader.load(re.sub(r"([{}\[\]*?\\])", r"\\\1", self.folder)).select("path")

    def full(self, files: int, records: int) -> bool:
        """Return True if an epoch has the maximum number of files, so that more files may be waiting."""
        return self.per_epoch is not None and files >= self.per_epoch

    def __str__(self) -> str:
        return f"{self.format} files in {self.folder}"


@dataclass(frozen=True)
class Start:
    """The position at which a new log begins to read its topics: the end, an arrival time, or offsets.

    `time` is in milliseconds. A partition that `offsets` does not name is read from its first message.

    >>> Start.of("2026-11-29T06:00:00Z").time, Start.of('{"orders": {"0": 17}}').offsets
    (1795932000000, {'orders': {'0': 17}})
    """

    text: str
    latest: bool = False
    time: int | None = None
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Start | None:
        """Read a start; `earliest` is None. Raises `SourceError` if the text is none of the three."""
        if text in ("earliest", "latest"):
            return cls(text, latest=True) if text == "latest" else None
        with suppress(ValueError):
            if (at := datetime.fromisoformat(text)).tzinfo is not None:
                return cls(text, time=round(at.timestamp() * 1000))
        with suppress(ValueError):
            offsets = json.loads(text)
            if isinstance(offsets, dict) and all(map(_is_offsets, offsets.values())):
                return cls(text, offsets=offsets)
        raise SourceError(
            f"--start {text}: expected earliest, latest, an instant with its offset from UTC, such as "
            '2026-11-29T06:00:00Z, or offsets, such as \'{"orders": {"0": 17, "1": 9}}\''
        )

    def __str__(self) -> str:
        return self.text


def _is_offsets(value: object) -> bool:
    pairs = value.items() if isinstance(value, dict) else [("", None)]
    return all(number.isdecimal() and type(at) is int and at >= 0 for number, at in pairs)


@dataclass(frozen=True)
class Kafka:
    """A Kafka topic as a source, or several topics: all topics whose whole names match a pattern.

    The log that reads the source declares the format of the messages. If `pattern` is True, `topic` is a regular
    expression of Java, and topics that are created later are read, too. `start` is where a log without an epoch begins.
    New partitions and new topics are always read from their first message.

    `per_epoch` is the maximum number of records in an epoch; `access` says how clients connect to the brokers.
    If a topic was deleted and created again, `new_topics` must have the id of the new topic, which is then read from
    its beginning. If a topic of a pattern was deleted, `gone_topics` must have its name.
    """

    topic: str
    bootstrap: str
    per_epoch: int | None = None
    access: KafkaAccess = PLAINTEXT
    new_topics: tuple[str, ...] = ()
    pattern: bool = False
    start: Start | None = None
    gone_topics: tuple[str, ...] = ()

    def stream(self, spark: SparkSession) -> DataFrame:
        """Open a streaming frame of the topic's records, with the columns `value`, `_source`, `_offset` and
        `_arrival`.
        """
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            # Spark looks for the pattern anywhere in a topic's name.
            .option(*(("subscribePattern", f"^(?:{self.topic})$") if self.pattern else ("subscribe", self.topic)))
            .option("startingOffsets", "earliest")
            # Do not read records of transactions that the producer aborted.
            .option("kafka.isolation.level", "read_committed")
            # If the broker has lost records, the query must fail, because a person has to decide what to do.
            .option("failOnDataLoss", "true")
            .options(**self.access.spark)
        )
        if self.per_epoch:
            reader = reader.option("maxOffsetsPerTrigger", self.per_epoch)
        return reader.load().selectExpr(
            "value", "CONCAT(topic, '-', partition) AS _source", "offset AS _offset", "timestamp AS _arrival"
        )

    def reads(self, topic: str) -> bool:
        """Return True if this source includes a topic."""
        return re.fullmatch(self.topic, topic) is not None if self.pattern else topic == self.topic

    def full(self, files: int, records: int) -> bool:
        """Return True if an epoch has about the maximum number of records, so that more records may be waiting."""
        # Count an epoch as full if it has more than half of the maximum: Spark divides the maximum among the partitions
        # and rounds down, so a full epoch may have fewer records than the maximum.
        return self.per_epoch is not None and records > self.per_epoch // 2

    def __str__(self) -> str:
        return f"Kafka topics like {self.topic}" if self.pattern else f"Kafka topic {self.topic}"


Source: TypeAlias = Files | Kafka


def _exists(folder: str) -> bool:
    parsed = urlparse(folder)
    return parsed.scheme not in ("", "file") or Path(parsed.path).is_dir()


@dataclass(frozen=True)
class InspectedFile:
    """The result of inspecting a file: the header line of a CSV file, or the row groups of a Parquet file.

    `broken` is the reason why the file cannot be read at all. `groups` are the sizes of the row groups, in bytes.
    """

    path: str
    header: bytes | None = None
    broken: str = ""
    groups: tuple[int, ...] = ()
    whole: bool = False
    """Whether Python reads the whole file on an executor: the file is compressed, or is a JSON file without lines."""

    @property
    def shape(self) -> tuple[str, ...]:
        """A key for grouping files: files with the same key can be read together."""
        # A path that looks like a pattern gets its own group. If Spark read such a path together with other paths, it
        # would read all of the files twice.
        alone = self.path if set(self.path) & set("{}[]*?\\") else ""
        return (repr(self.header), alone, str(self.has_colon))

    @property
    def has_colon(self) -> bool:
        """Whether the file is local and its name has a colon, which Hadoop would mistake for the end of a URI
        scheme.
        """
        return self.path.startswith(("/", "file:")) and ":" in self.path.rpartition("/")[2]


def inspect_files(log: Log, format: Format, paths: Sequence[str]) -> list[InspectedFile]:
    """Inspect files in parallel. Raises `SourceError` if a file exists but cannot be opened."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="look") as pool:
        return list(pool.map(lambda path: _look(log, format, path), paths))


def _look(log: Log, format: Format, path: str) -> InspectedFile:
    try:
        files, name = file_system(path)
        file = files.open_input_file(name)
    except (OSError, pa.ArrowException) as error:
        if fault := raw_fault(path):
            return InspectedFile(path, broken=fault)
        raise SourceError(f"{path} cannot be opened: {error}") from error
    with file:
        try:
            if format == "avro":
                return InspectedFile(path)
            if format == "parquet":
                return _look_at_parquet(log, path, open_parquet(file))
            return _look_at_text(log, format, path, file)
        except (OSError, ValueError, pa.ArrowException) as error:
            return InspectedFile(path, broken=raw_fault(path) or f"the file cannot be read as {format}: {error}")


def _look_at_text(log: Log, format: Format, path: str, file: pa.NativeFile) -> InspectedFile:
    """Inspect the beginning and the longest line of a text file. Raises an error if the file is damaged there."""
    if compression(path) == HADOOPS and _is_no_lz4(file):
        return InspectedFile(path, broken=f"the file cannot be read as {format}: it is not an lz4 file of Hadoop's")
    file.seek(0)
    text = open_text(path, file)
    if format == "json" and text is not None and has_values(partial(text.read, 1 << 16), log.record_bytes)[0]:
        return InspectedFile(path, whole=True)
    file.seek(0)
    if has_line_over(path, file, int(file.size()), most := longest_line(log)):
        broken = f"the file has a line of more than {most:,} bytes: write its records on lines of their own"
        return InspectedFile(path, broken=broken)
    file.seek(0)
    header = csv_header(log, path, file) if format == "csv" else None
    return InspectedFile(path, header=header, whole=compression(path) not in ("", HADOOPS))


def longest_line(log: Log) -> int:
    """Return the maximum length of a line in bytes; a file with a longer line is rejected as a whole."""
    return max(LONGEST, log.record_bytes)


def _is_no_lz4(file: pa.NativeFile) -> bool:
    """Return True if a file does not have Hadoop's compression with LZ4; Spark would silently find no lines in it."""
    if not (size := file.size()):
        return False
    # A compressed block begins with its uncompressed length and the length of its first compressed part. Check that
    # this part is not longer than the rest of the file.
    start = bytes(file.read(8))
    return len(start) < 8 or int.from_bytes(start[4:], "big") > size - 8


def raw_fault(path: str) -> str:
    """Return the reason why the bytes of a file cannot be read, or an empty string if they can be read.

    A reason is returned in two cases: the file no longer exists, or the file's permissions forbid reading it although
    the file's folder is readable. Raises `SourceError` if the bytes cannot be read for any other reason.
    """
    try:
        files, name = file_system(path)
        with files.open_input_file(name) as file:
            while file.read(1 << 24):
                pass
    except FileNotFoundError:
        return "the file is gone"
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, PermissionError) and _barred(path):
            return "the file may not be read: its permissions are not those of its folder"
        raise SourceError(f"{path} cannot be read: {error}") from error
    return ""


def _barred(path: str) -> bool:
    """Return True if this process has permission to read the folder of a local file, but not the file."""
    files, name = file_system(path)
    folder, effective = os.path.dirname(name), os.access in os.supports_effective_ids
    return isinstance(files, fs.LocalFileSystem) and os.access(folder, os.R_OK | os.X_OK, effective_ids=effective)


def csv_header(log: Log, path: str, file: Any) -> bytes | None:
    """Read the header of a CSV file: its first line that is not blank; None if the log's files have no header.

    Raises `ValueError` if the header cannot be divided into the names of columns.
    """
    if not log.csv.header:
        return None
    start, text = b"", open_text(path, file)
    while text is not None:
        more = text.read(1 << 16)
        start += more
        whole = start if not more else start[: start.rfind(b"\n") + 1]
        header = next((line for line in whole.split(b"\n") if not is_blank(line)), b"")
        if header or not more:
            return CsvRecords(log, header).header_bytes
    raise ValueError("only Hadoop can decompress it")


def _look_at_parquet(log: Log, path: str, file: pq.ParquetFile) -> InspectedFile:
    columns = ParquetColumns.of(log, file)
    sizes = (file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
    return InspectedFile(path, broken=columns.unlike if columns.twice else "", groups=tuple(sizes))


@dataclass(frozen=True)
class RowGroups:
    """Some of a Parquet file's row groups."""

    path: str
    groups: range


def row_group_parts(files: Sequence[InspectedFile]) -> list[list[RowGroups]]:
    """Divide the row groups of files among tasks; a task reads about 64 MB, or one row group.

    >>> parts = row_group_parts([InspectedFile("a", groups=(5, 5)), InspectedFile("b", groups=(_TASK, 5))])
    >>> [[(one.path, one.groups) for one in part] for part in parts]
    [[('a', range(0, 2))], [('b', range(0, 1))], [('b', range(1, 2))]]
    """
    parts, filled = [list[RowGroups]()], 0
    for file in files:
        begins = 0
        for place, size in enumerate(file.groups):
            if filled and filled + size > _TASK:
                if begins < place:
                    parts[-1].append(RowGroups(file.path, range(begins, place)))
                parts.append([])
                begins, filled = place, 0
            filled += size
        parts[-1].append(RowGroups(file.path, range(begins, len(file.groups))))
    return parts


_TASK = 64 * 2**20
"""The number of bytes of decoded row groups that one task reads."""

SizeLookup: TypeAlias = Callable[[], Sequence[int]]
"""A function that returns the sizes of an epoch's files in bytes.

The function looks up the sizes when it is called for the first time.
"""


_MESSAGE = 1_000
"""The assumed size of a topic's message, in bytes."""


def bytes_to_read(source: Files | Kafka, sized: SizeLookup, read: Mapping[str, str], before: Mapping[str, str]) -> int:
    """Return the number of bytes that an epoch reads: the exact size of files, or an estimate for messages.

    `read` contains the offset up to which the epoch reads its source; `before` contains the offset of the preceding
    epoch.
    """
    if isinstance(source, Files):
        return sum(sized())
    return _MESSAGE * messages_between(before.get("offset", ""), read["offset"])


def messages_between(before: str, until: str) -> int:
    """Return the number of messages between two offsets of a topic.

    >>> messages_between('{"clicks":{"0":3}}', '{"clicks":{"0":7,"1":2}}')
    6
    """
    first, last = topic_offsets(before), topic_offsets(until)
    return sum(at - first.get(partition, 0) for partition, at in last.items())


def topic_offsets(text: str) -> dict[tuple[str, str], int]:
    """Read the offset of each topic and partition from an offset of Spark's Kafka source.

    The result is empty for an offset of another source.
    """
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    topics = data.items() if isinstance(data, dict) else ()
    return {(topic, one): at for topic, of in topics if isinstance(of, dict) for one, at in of.items()}


class FileState(NamedTuple):
    """The size of a file in bytes, and its modification time in nanoseconds; both are 0 if the file cannot be read."""

    size: int = 0
    modified: int = 0


def file_states(paths: Sequence[str]) -> list[FileState]:
    """Look up the sizes and the modification times of files."""
    if all(path.startswith(("/", "file:")) for path in paths):
        return list(map(_state, paths))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes") as pool:
        return list(pool.map(_state, paths))


def file_sizes(paths: Sequence[str]) -> list[int]:
    """Look up the sizes of files in bytes; a missing or unreadable file has the size zero."""
    return [state.size for state in file_states(paths)]


def _state(path: str) -> FileState:
    try:
        files, name = file_system(path)
        found = files.get_file_info(name)
        return FileState(found.size or 0, found.mtime_ns or 0)
    except (OSError, pa.ArrowException):
        return FileState()


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Return pyarrow's file system for a file, and the file's name in this file system.

    `path` is Spark's name of the file, without percent-encoding.
    """
    scheme, host, name = re.fullmatch(r"(?:(\w+):)?(?://([^/]*))?(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr]
    if scheme in (None, "file"):
        return fs.LocalFileSystem(), name
    files, root = fs.FileSystem.from_uri(f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{host}")
    return files, root + name


_AT_ONCE = 16
