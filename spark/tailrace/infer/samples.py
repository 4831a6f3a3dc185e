"""Read a bounded sample of files: JSON lines, CSV and Parquet, compressed too."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from tailrace.infer.columns import Given, place_text, unique
from tailrace.infer.observations import LONGEST_NAME
from tailrace.infer.words import snake
from tailrace.ingest.column_types import parquet_type
from tailrace.ingest.compressed_text import Text, compression, open_text
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.types import is_type, struct_type
from tailrace.model.logs.json_limits import beyond
from tailrace.model.logs.json_records import AROUND, Number

ENDINGS = {
    "json": "json", "jsonl": "json", "ndjson": "json", "txt": "json", "log": "json", "csv": "csv", "parquet": "parquet",
}  # fmt: skip
"""For each ending of a file's name, the format of its records."""

FILES = 20
"""The maximum number of files of a folder that are read."""

LONGEST = 2**20
"""The maximum number of bytes of a line that is looked at."""

TEXT = 64 * 2**20
"""The maximum number of bytes of text that are read."""


class SampleError(TailraceError, ValueError):
    """The error for a source from which nothing can be inferred."""


@dataclass
class Sample:
    """The sampled records of a source.

    A record has the values of JSON, and its numbers are `Number`. `parts` are the numbers of records of each file or
    partition, in order. `raw` are the lines of JSON records, or of a CSV file with its header. `arrivals` are the
    times at which messages arrived, in microseconds. `types` are the declared types that the columns of Parquet files
    have, `left_out` are the columns that have no such type, and `local` says whether some have times without a zone.
    `whole` says that the sample is all of the source.
    """

    format: str
    source: str
    name: str
    records: list[Mapping[str, Any]] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    unread: int = 0
    whole: bool = True
    types: dict[str, Given] = field(default_factory=dict)
    local: bool = False
    delimiter: str = ","
    left_out: dict[str, str] = field(default_factory=dict)

    def add_line(self, raw: bytes) -> bool:
        """Add a line or message in JSON; return whether it was a record."""
        record = _object(raw)
        if record is None:
            self.unread += 1
            return False
        self.records.append(record)
        self.raw.append(raw)
        return True


def read_files(place: Path, records: int, format: str | None = None) -> Sample:
    """Read at most so many records of a file, or of some files of a folder. Raises `SampleError` if there are none."""
    files = _files(place) if place.is_dir() else [place]
    formats = {one: format or _format(one) for one in files}
    if place.is_dir():
        first = next((one for one in formats.values() if one), None)
        files = [one for one in files if formats[one] == first and first]
    if not files or not formats[files[0]]:
        endings = ", ".join(f".{one}" for one in ENDINGS)
        raise SampleError(
            f"{place}: expected a file of JSON lines, CSV or Parquet, or a folder of such files: their names end in "
            f"{endings}, and .gz, .bz2 or .zst if they are compressed"
        )
    chosen = _spread(files, min(FILES, records))
    kind = formats[files[0]] or ""
    sample = Sample(kind, str(place), _stem(place), whole=len(chosen) == len(files))
    for number, file in enumerate(chosen):
        left = (records - len(sample.records)) // (len(chosen) - number)
        before = len(sample.records)
        try:
            sample.whole &= _READERS[kind](sample, file, max(1, left))
        except SampleError:
            raise
        except (OSError, EOFError, ValueError, csv.Error) as error:
            raise SampleError(f"{file} cannot be read as {kind}: {error}") from error
        sample.parts.append(len(sample.records) - before)
    if not sample.records:
        what = {"json": "a line with one JSON object", "csv": "a row below the header", "parquet": "a row"}[kind]
        raise SampleError(f"{place}: no record was found ({sample.unread:,} lines could not be read): expected {what}")
    return sample


def _files(folder: Path) -> list[Path]:
    return sorted(
        one
        for one in folder.rglob("*")
        if one.is_file() and not any(part.startswith((".", "_")) for part in one.relative_to(folder).parts)
    )


def _spread(files: Sequence[Path], most: int) -> list[Path]:
    """Return some of the files, at equal distances."""
    if len(files) <= most:
        return list(files)
    return [files[place * len(files) // most] for place in range(most)]


def _format(file: Path) -> str | None:
    name = file.name.lower()
    packed = compression(name)
    return ENDINGS.get((name.removesuffix(f".{packed}") if packed else name).rpartition(".")[2])


def _stem(place: Path) -> str:
    return place.resolve().name if place.is_dir() else place.name.partition(".")[0]


def _lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, without line ends; of a line that is too long only its beginning."""
    with file.open("rb") as opened:
        text = open_text(file.name.lower(), opened)
        if text is None:
            raise SampleError(f"{file}: only files that are compressed as .gz, .bz2 or .zst are read here")
        yield from _split(text)


def _split(text: Text) -> Iterator[bytes]:
    rest, read = b"", 0
    while (part := text.read(2**16)) and read < TEXT:
        read += len(part)
        *lines, end = part.split(b"\n")
        if lines:
            yield rest + lines[0]
            yield from lines[1:]
            rest = b""
        if len(rest) <= LONGEST:
            rest += end
    if rest:
        yield rest


def _read_json(sample: Sample, file: Path, most: int) -> bool:
    found = 0
    for line in _lines(file):
        if not line.strip(_BLANK):
            continue
        if found == most:
            return False
        found += sample.add_line(line)
    return True


def _object(raw: bytes) -> Mapping[str, Any] | None:
    """Parse a JSON object; return None if a line is none."""
    if len(raw) > LONGEST:
        return None
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
    return made if isinstance(made, dict) else None


def _read_csv(sample: Sample, file: Path, most: int) -> bool:
    lines = (line.decode().removeprefix(_MARK) for line in _lines(file))
    first = next(lines, "")
    sample.delimiter = max(_DELIMITERS, key=first.count)
    rows = csv.reader((f"{line}\n" for line in chain([first], lines)), strict=True, delimiter=sample.delimiter)
    header = [name.strip() for name in next(rows, [])]
    found = 0
    for row in rows:
        if not row:
            continue
        if found == most:
            return False
        if len(row) != len(header):
            sample.unread += 1
            continue
        found += 1
        sample.records.append({name: _cell(text) for name, text in zip(header, row, strict=True)})
    return True


def _cell(text: str) -> Any:
    if text == "":
        return None
    if text in ("true", "false"):
        return text == "true"
    return Number(text) if _NUMERAL.fullmatch(text) else text


def _read_parquet(sample: Sample, file: Path, most: int) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            for one in opened.schema_arrow:
                places = dict[str, str]()
                found = _declared(one.type, "", places)
                if found is None:
                    sample.left_out.setdefault(one.name, str(one.type)[:100])
                else:
                    sample.types.setdefault(one.name, Given(found, places=places))
                    sample.local |= _has_local_times(one.type)
            before = len(sample.records)
            for batch in opened.iter_batches(min(most, 1000), columns=list(sample.types)):
                rows = batch.slice(0, most - (len(sample.records) - before)).to_pylist()
                sample.records += [_as_json(row) for row in rows]
                if len(sample.records) - before == most:
                    break
            return bool(len(sample.records) - before == opened.metadata.num_rows)
    except pa.ArrowException as error:
        raise SampleError(f"{file} cannot be read as parquet: {error}") from error


def _declared(type: Any, path: str, places: dict[str, str]) -> str | None:
    """Return the declared type for a type of Arrow, or None if there is none; note the places of fields in structs."""
    import pyarrow as pa

    if pa.types.is_struct(type):
        fields, taken = dict[str, str](), {one.name for one in type if snake(one.name) == one.name}
        for one in type:
            own = one.name if one.name in taken else unique(snake(one.name), taken)
            inner = _declared(one.type, f"{path}.{own}", places)
            if inner is None or not one.name or len(one.name) > LONGEST_NAME:
                return None
            if own != one.name:
                places[f"{path}.{own}"] = place_text((one.name,))
            fields[own] = inner
        return struct_type(fields) if fields else None
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        inner = _declared(type.value_type, path, places)
        return None if inner is None else f"array<{inner}>"
    if pa.types.is_map(type):
        inner = _declared(type.item_type, path, places) if pa.types.is_string(type.key_type) else None
        return None if inner is None else f"map<string,{inner}>"
    found = "timestamp" if pa.types.is_timestamp(type) else parquet_type(type)
    return found if is_type(found) else None


def _has_local_times(type: Any) -> bool:
    import pyarrow as pa

    inner = any(_has_local_times(type.field(number).type) for number in range(type.num_fields))
    return inner or (pa.types.is_timestamp(type) and type.tz is None)


def _as_json(value: Any) -> Any:
    """Convert a value of a Parquet file to a value that a record in JSON has."""
    match value:
        case bool() | str() | None:
            return value
        case dict():
            return {name: _as_json(one) for name, one in value.items()}
        case list():
            return [_as_json(one) for one in value]
        case int() | Decimal():
            return Number(value)
        case float():
            return Number(repr(value)) if isfinite(value) else None
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return str(value)


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


_DELIMITERS = (",", ";", "\t", "|")
_BLANK = AROUND.encode()
_MARK = codecs.BOM_UTF8.decode()
_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_constant)
_NUMERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_READERS = {"json": _read_json, "csv": _read_csv, "parquet": _read_parquet}
