"""Find undeclared fields that a log ignores although their names are almost the same as the names of missing columns.

For example, a log with `unknown="ignore"` that declares the column `userid` ignores a field `userId`, so the column is
missing in every record. Therefore a few records of each epoch are checked. If the name of an ignored field is almost
the same as the name of a missing column, the field is reported once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tailrace.ingest.avro_files import AvroFile
from tailrace.ingest.json_values import ValueSplitter, has_values
from tailrace.ingest.sources import Format, csv_header, file_system
from tailrace.lake.catalog.events import NearName
from tailrace.model.logs.csv_records import CsvRecords
from tailrace.model.logs.log import Log

_RECORDS = 16
"""The number of records per epoch that are checked."""

_FILES = 4
_BYTES = 1 << 16
"""The number of bytes at the beginning of a file from which its first records are read."""

_APART = 60.0
"""The minimum number of seconds between two checks, if a check needs an additional request or Spark job."""

_FOUND = 50
"""The maximum number of fields that are reported for a log."""


def near_names(log: Log, names: Iterable[str]) -> dict[str, str]:
    """Map each undeclared field of a record to the missing column whose name is almost the same as the field's name.

    >>> from tailrace import Log
    >>> log = Log(name="clicks", columns={"userid": "string", "at": "timestamp"}, event_time="at", unknown="ignore")
    >>> near_names(log, ["user_Id", "at", "price"]), near_names(log, ["userId", "userid", "at"])
    ({'user_Id': 'userid'}, {})
    """
    there = set(names)
    # Leave out the event time in a log of a table's changes, because it is not a column of the table.
    left_out = {*log.folders, *([log.event_time] if log.signed else [])}
    columns = [column for column in log.columns if column not in left_out]
    lacking = {_folded(column): column for column in columns if not there.intersection(log.names_of(column))}
    declared = {name for column in log.columns for name in log.names_of(column)}
    return {name: lacking[_folded(name)] for name in sorted(there - declared) if _folded(name) in lacking}


def _folded(name: str) -> str:
    return "".join(one for one in name.casefold() if one not in "_-. ")


class NearNames:
    """The search of a log's records for undeclared fields whose names are almost the same as the names of missing
    columns.

    `tell` is called once for each field that is found.
    """

    def __init__(self, log: Log, tell: Callable[[NearName], None]) -> None:
        self.log, self._tell = log, tell
        self.found: dict[str, str] = {}
        self._next = 0.0

    def of_files(self, format: Format, files: Sequence[str]) -> None:
        """Check the first records of a few files.

        If any file is not local, only one file is checked, at most once a minute.
        """
        if self.log.unknown == "reject" or not files:
            return
        chosen = files[:: max(1, len(files) // _FILES)][:_FILES]
        if not all(file.startswith(("/", "file:")) for file in files):
            chosen = chosen[:1] if self._due() else []
        for file in chosen:
            # Errors are ignored here, because unreadable files are reported when all records are read.
            with suppress(OSError, ValueError, pa.ArrowException):
                self.of_records(_first(self.log, format, file, _RECORDS // len(chosen)))

    def of_messages(self, batch: DataFrame) -> None:
        """Check a few JSON messages, at most once a minute."""
        if self.log.unknown == "reject" or not self._due():
            return
        with suppress(PySparkException, Py4JJavaError):
            values = [row["value"] for row in batch.select("value").limit(_RECORDS).collect()]
            self.of_records(_objects(map(bytes, filter(None, values)), change=self.log.signed))

    def of_records(self, records: Iterable[Iterable[str]]) -> None:
        """Check records or schemas. A record or schema is passed as the names of its fields."""
        if self.log.unknown == "reject":
            return
        for names in records:
            for field, column in near_names(self.log, names).items():
                if field not in self.found and len(self.found) < _FOUND:
                    self.found[field] = column
                    self._tell(NearName(self.log.name, field, column))

    def _due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _APART
        return True


def _first(log: Log, format: Format, path: str, most: int) -> Iterator[Iterable[str]]:
    """Yield the field names of a file's first records. Raises `OSError` or `ValueError` if the file is unreadable."""
    files, name = file_system(path)
    if format == "parquet":
        with files.open_input_file(name) as file:
            yield pq.read_schema(file).names
        return
    if format == "avro":
        with files.open_input_file(name) as file:
            yield list(AvroFile(file).schema.kind.fields)
        return
    if format == "csv":
        with files.open_input_file(name) as file:
            yield CsvRecords(log, csv_header(log, path, file)).names
        return
    with files.open_input_stream(name) as stream:
        start = stream.read(_BYTES)
    several, _ = has_values(iter([start, b""]).__next__, _BYTES)
    yield from _objects((ValueSplitter(_BYTES).split(start).to_pylist() if several else start.split(b"\n"))[:most])


def _objects(lines: Iterable[bytes], *, change: bool = False) -> Iterator[Iterable[str]]:
    """Yield the field names of each JSON object.

    If `change` is True, the objects are change records. The field names are then read from the row after the change or,
    if this row is missing, from the row before the change.
    """
    for line in lines:
        # An invalid line is ignored. If the whole line is invalid, it is rejected later, when all records are read. If
        # only the first bytes of the line were read here, the line may be valid.
        with suppress(ValueError, RecursionError):
            found: Any = json.loads(line)
            if change and isinstance(found, Mapping):
                found = found.get("payload", found)
                found = isinstance(found, Mapping) and (found.get("after") or found.get("before"))
            if isinstance(found, Mapping):
                yield found
