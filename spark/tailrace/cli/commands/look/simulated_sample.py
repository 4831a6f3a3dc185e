"""Read the sample of `tailrace simulate`, and report its contents.

If a definition reads several logs, the sample of each log is a separate file or folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.cli.terminal.formats import quantity
from tailrace.cli.terminal.usage import LoadError
from tailrace.ingest.compressed_text import AT_ONCE, HADOOPS, compression, lines_of, open_text
from tailrace.ingest.folders.file_names import ENDINGS, format_of, is_read
from tailrace.ingest.json_values import json_texts
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.logs.log import Log, log_names
from tailrace.model.samples import sample_records
from tailrace.model.samples.sample_records import Sample
from tailrace.model.windows.panes import Rejected
from tailrace.telemetry.json_fields import fields

_SUFFIXES = tuple(f".{ending}" for ending in ENDINGS)
_KINDS = f"{', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"


def read_samples(logs: Sequence[Log], data: Path) -> list[tuple[Log, Sample]]:
    """Read a sample of each log from `data`.

    For a single log, `data` is the file or folder of the sample. For several logs, `data` is a folder that contains,
    for each log, a file or folder with the name of the log. Raises `LoadError` if the sample of a log is missing or
    cannot be read.
    """
    if len(logs) == 1:
        return [(logs[0], _read(logs[0], data))]
    return [(log, _read(log, _place(log, logs, data))) for log in logs]


def sample_text(sample: Sample) -> str:
    """Return a text with the counts of a sample: its records, its rejected lines, and its duplicates."""
    again = f", {sample.duplicates:,} that came again" if sample.duplicates else ""
    return f"{sample.came:,}, {quantity(len(sample.rejected), 'line')} rejected{again}"


def sample_data(sample: Sample, rejected: Iterable[Rejected]) -> dict[str, Any]:
    """Return as JSON data the counts of a sample and all rejections.

    The rejections are the sample's rejected lines, and the records that the definition's steps rejected.
    """
    lines: list[dict[str, Any]] = [{"line": line, "reason": reason} for line, reason in sample.rejected]
    steps = [fields(one, "epoch", "reason") for one in rejected]
    return {**fields(sample, "records=came", "duplicates"), "rejected": lines + steps}


def _place(log: Log, logs: Sequence[Log], data: Path) -> Path:
    """Find the file or folder with a log's sample in the folder `data`, and return its path.

    The file may be compressed, such as `clicks.csv.gz`. Raises `LoadError` if there is no such file or folder.
    """
    there = sorted(data.iterdir()) if data.is_dir() else []
    places = [one for one in there if one.name.startswith(f"{log.name}.") and format_of(one.name) is not None]
    found = next(iter([one for one in there if one.name == log.name] + places), None)
    if found is None:
        raise LoadError(
            f"{data}: nothing of log {log.name} in it: expected a folder with a file or a folder for each of "
            f"{log_names(logs)}, such as {log.name}.jsonl"
        )
    return found


def _read(log: Log, path: Path) -> Sample:
    """Read the sample of one log from a file, or from all files of a folder and its folders in alphabetical order."""
    if not path.is_dir():
        return _read_file(log, path)
    files = sorted(one for one in path.rglob("*") if is_read(one, path))
    if not files:
        raise LoadError(
            f"{path}: an empty folder: expected a sample of log {log.name}, as .jsonl, .csv, .parquet or .avro"
        )
    return Sample.together(_read_file(log, one) for one in files)


def _read_file(log: Log, path: Path) -> Sample:
    if not path.is_file():
        raise LoadError(
            f"{path}: no such file: expected a sample of log {log.name}, as .jsonl, .csv, .parquet or .avro"
        )
    kind = format_of(path.name)
    try:
        if kind == "parquet":
            return _read_parquet(log, path)
        if kind == "avro":
            return _read_avro(log, path)
        if kind is None or compression(path.name.lower()) == HADOOPS:
            raise LoadError(f"{path}: a sample is {_KINDS}; text may be .gz, .bz2, .zst or .snappy")
        source = path.resolve().as_uri()
        with path.open("rb") as file:
            text = open_text(path.name.lower(), file)
            assert text is not None, "only one compression has no reader"
            if kind == "csv":
                return sample_records.from_csv(log, lines_of(iter(partial(text.read, AT_ONCE), b"")), source)
            return sample_records.from_json(log, json_texts(text, log.record_bytes), source)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"{path}: cannot be read as {kind}: {error}") from error


def _read_avro(log: Log, path: Path) -> Sample:
    """Read a container file of Avro, as a stream does."""
    import pyarrow as pa

    from tailrace.ingest.avro_files import AvroFile, AvroRows

    with pa.OSFile(str(path)) as file:
        return _of_table(log, pa.concat_tables(AvroRows(log, AvroFile(file)).read(path.resolve().as_uri(), 0)))


def _read_parquet(log: Log, path: Path) -> Sample:
    """Read a file of Parquet, as a stream does. When the records arrived is not known."""
    import pyarrow as pa

    from tailrace.ingest.column_slices import open_parquet
    from tailrace.ingest.parquet_reader import ParquetColumns
    from tailrace.ingest.plain_columns import schema_of

    with open_parquet(str(path)) as file:
        columns = ParquetColumns.of(log, file)
        if columns.twice:
            raise LoadError(f"{path}: {columns.unlike}")
        parts = columns.reader().read(file.read(), path.resolve().as_uri(), 0, END_OF_TIME)
        return _of_table(log, pa.concat_tables([schema_of(log).empty_table(), *parts]))


def _of_table(log: Log, read: Any) -> Sample:
    """Build a sample from a table of records, valid and rejected ones (`plain_columns.schema_of`)."""
    import pyarrow as pa

    from tailrace.ingest.plain_columns import as_numbers

    rows = pa.table({name: as_numbers(read[name]) for name in log.columns}).to_pylist()
    given = zip(rows, read["_error"].to_pylist(), strict=True)
    return sample_records.from_values(log, ((place, reason or row) for place, (row, reason) in enumerate(given, 1)))
