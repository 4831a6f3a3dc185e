"""Find the record of a line of a file, in a log and among its rejected records.

The offset of a record is usually its index in the file. Where Spark has scanned the file, offsets are other numbers
(`SCANNED`): then the line is read from the file, and its record is the one with the line's bytes or values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyiceberg.table import Table

from tailrace.ingest.compressed_text import AT_ONCE, lines_of, open_text
from tailrace.ingest.folders.file_names import format_of
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.filters import Filter, above, equal, every
from tailrace.lake.schema.table_names import rejected_name
from tailrace.model.base.time import moment
from tailrace.model.logs.csv_records import CsvHeaderError, CsvRecords
from tailrace.model.logs.json_records import JsonRecords, Values, as_record
from tailrace.model.logs.log import SCANNED, Log
from tailrace.trace.wanted_records import (
    FoundRecords,
    Wanted,
    WantedError,
    find_in_logs,
    find_records,
    of_source,
    scanned_rows,
)

_SCANNED = above("_offset", SCANNED - 1)


def find_line(lake: Lake, logs: Iterable[Log], wanted: Wanted, limit: int) -> list[FoundRecords]:
    """Find the record of a line (`Wanted.at_line`). If a scanned file has equal lines, the records of all are found.

    Raises `WantedError` if the line of a scanned file cannot be read.
    """
    logs = list(logs)
    found = find_in_logs(lake, logs, wanted, limit)
    if any(one.landed or one.rejected for one in found):
        return found
    for log in logs:
        source = _scanned_source(lake, log, str(wanted.source))
        if source is not None:
            return [_of_line(lake, log, source, int(wanted.offset or 0), limit)]
    return found


def _scanned_source(lake: Lake, log: Log, text: str) -> str | None:
    """Return the whole name of a file that Spark has scanned, given the end of its name."""
    for table in (log.name, rejected_name(log.name)):
        if lake.has(table):
            scan = lake.table(table).scan(row_filter=_SCANNED, selected_fields=("_source", "_offset"))
            for batch in scan.to_arrow_batch_reader():
                for source in batch["_source"].unique().to_pylist():
                    if of_source(source, text):
                        return str(source)
    return None


def _of_line(lake: Lake, log: Log, source: str, place: int, limit: int) -> FoundRecords:
    """Find the records of a scanned file that have the bytes or the values of a line; `place` is the line's index."""
    head, raw = _line(log, source, place)
    read = _read(log, source, head, raw)

    def rows(table: Table, where: Filter) -> Iterator[dict[str, Any]]:
        if isinstance(read, str):
            return
        values, time = as_record(log, read), moment(int(str(read[log.event_time])))
        names = match_names(table, log.columns, {field.name for field in table.schema().fields})
        own = {stored: values[name] for name, stored in names.items() if stored is not None}
        at = every(_SCANNED, equal(names[log.event_time] or log.event_time, time.isoformat()))
        yield from (row for row in scanned_rows(table, at) if all(row[one] == value for one, value in own.items()))

    return find_records(lake, log, Wanted(source=source, raw=raw), limit, rows)


def _line(log: Log, source: str, place: int) -> tuple[bytes | None, bytes]:
    """Read a line of a file, and the header of the file."""
    cannot = f"{source} was scanned by Spark, so its line {place + 1:,}"
    if not source.startswith("file:"):
        raise WantedError(f"{cannot} is found only if the file is on this machine: find the record by --where")
    path = Path(unquote(re.sub("^file:/+", "/", source)))
    try:
        with path.open("rb") as file:
            text = open_text(path.name.lower(), file)
            lines = iter(()) if text is None else lines_of(iter(partial(text.read, AT_ONCE), b""))
            first = next(lines, None) if place else None
            raw = next(islice(lines, max(0, place - 1), None), None)
    except OSError as error:
        raise WantedError(f"{cannot} is not found: {error}; find the record by --where") from error
    if raw is None:
        raise WantedError(f"{path} has no line {place + 1:,}")
    return (first if log.csv.header else None), raw


def _read(log: Log, source: str, head: bytes | None, raw: bytes) -> Values | str:
    if format_of(source) != "csv":
        return JsonRecords(log, times=False).read(raw, source=source)
    try:
        return CsvRecords(log, head).read(raw, source=source)
    except CsvHeaderError as error:
        return str(error)
