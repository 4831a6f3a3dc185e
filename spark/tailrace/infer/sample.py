"""The sampled records of a source, with what is known about the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tailrace.infer.columns import Given
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.json_limits import beyond
from tailrace.model.base.json_scalars import Number
from tailrace.model.logs import shapes
from tailrace.model.logs.csv_options import RFC_4180, Csv
from tailrace.model.logs.csv_records import CsvRecords
from tailrace.model.logs.json_records import AROUND, JsonRecords
from tailrace.model.logs.log import Log

LONGEST = 2**20
"""The maximum number of bytes of a record that is looked at."""

TEXT = 64 * 2**20
"""The maximum number of bytes of text that are read, of all files together."""


class SampleError(TailraceError, ValueError):
    """The error for a source from which nothing can be inferred."""


@dataclass
class SampledFile:
    """A file of a sample: its name in the form of a URI, its header if it is CSV, and the values of its folders."""

    path: Path
    header: bytes | None = None
    folders: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The name of the file, as a log stores it."""
        return self.path.resolve().as_uri()


@dataclass
class Sample:
    """The sampled records of a source.

    A record has the values of JSON, and its numbers are `Number`. `parts` are the numbers of records of each file or
    partition, in order, and `files` are the files. `raw` are the texts of the records of JSON and CSV. `unread` counts
    what is rejected in any case, `skipped` the records that are too large to be looked at. `arrivals` are the times at
    which messages arrived, in microseconds. `types` are the declared types that the places of Parquet and Avro files
    have, `left_out` are the columns that no log can have, with the reason, and `local` says whether some have times
    without a zone. `csv` are the options of CSV files. `folders` are the fields whose values are in the names of
    folders. `check` returns the reasons for which a log rejects records of Parquet and Avro. `whole` says that the
    sample is all of the source, and `notes` are remarks about it.
    """

    format: str
    source: str
    name: str
    records: list[Mapping[str, Any]] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    files: list[SampledFile] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    unread: int = 0
    skipped: int = 0
    whole: bool = True
    types: dict[shapes.Path, Given] = field(default_factory=dict)
    local: bool = False
    csv: Csv = RFC_4180
    left_out: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    check: Callable[[Log], Iterator[str]] | None = None
    left: int = TEXT
    """The number of bytes of text that may still be read."""
    notes: list[str] = field(default_factory=list)

    def add_line(self, raw: bytes) -> bool:
        """Add a line or message in JSON; return whether it was a record."""
        if len(raw) > LONGEST:
            self.skipped += 1
            return False
        record = json_object(raw)
        if record is None:
            self.unread += 1
            return False
        self.records.append(record)
        self.raw.append(raw)
        return True

    def reasons(self, log: Log) -> Iterator[str]:
        """Yield the reasons for which a log rejects records of the sample, as its reader states them."""
        if self.check is not None:
            yield from self.check(log)
            return
        begins = 0
        for place, count in enumerate(self.parts):
            file = self.files[place] if self.files else None
            reader: Any = CsvRecords(log, file.header if file else None) if self.format == "csv" else JsonRecords(log)
            for raw in self.raw[begins : begins + count]:
                if isinstance(read := reader.read(raw, source=file.source if file else ""), str):
                    yield read
            begins += count


def json_object(raw: bytes) -> Mapping[str, Any] | None:
    """Parse a JSON object; return None if a text is none."""
    made = json_value(raw)
    return made if isinstance(made, dict) else None


def json_value(raw: bytes) -> Any:
    """Parse a JSON text, whose numbers become `Number`; return None if it is none, or too deeply nested."""
    try:
        text = raw.decode().strip(AROUND)
        if beyond(text) is not None:
            return None
        made = _DECODER.decode(text)
        if "\\u" in text:
            # A text with half of a surrogate pair is no text.
            json.dumps(made, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return made


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_constant)
