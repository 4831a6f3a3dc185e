"""Files as a test lands them, and what reading made of every record in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tailrace.model.base.json_scalars import rounded_in
from tailrace.model.logs.json_records import JsonRecords, as_record
from tailrace.model.logs.log import ROUNDED, Log

THINGS = Log(
    name="things",
    columns={
        "id": "string",
        "at": "timestamp",
        "n": "bigint",
        "small": "int",
        "ratio": "double",
        "price": "decimal(10,2)",
        "day": "date",
        "ok": "boolean",
    },
    event_time="at",
)
"""A log with a column of each type."""


@dataclass(frozen=True)
class Outcome:
    """What became of the records: the good ones' values, instants in microseconds; the bad ones' bytes and reasons."""

    good: list[tuple[Any, ...]]
    bad: list[tuple[bytes | None, str]]

    @property
    def reasons(self) -> dict[bytes | None, str]:
        """The bad ones' reasons by their bytes."""
        reasons = dict(self.bad)
        assert len(reasons) == len(self.bad), f"two bad records with the same bytes: {self.bad}"
        return reasons


def put(folder: Path, files: Mapping[str, bytes | pa.Table]) -> list[str]:
    """Write files, tables as Parquet, and give their names as Spark's streaming source does."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in files.items():
        path = folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            pq.write_table(content, path)
        paths.append(f"file:{path}")
    return paths


def lines(*records: bytes | str) -> bytes:
    """A text file with these lines."""
    return b"".join((one.encode() if isinstance(one, str) else one) + b"\n" for one in records)


def by_model(log: Log, texts: Sequence[bytes | None], source: str = "") -> list[dict[str, Any] | str]:
    """Read each text of a file with the model's own reader; give the record, or the reason for rejecting it."""
    reader, found = JsonRecords(log), list[dict[str, Any] | str]()
    for text in texts:
        read = reader.read(text, source=source)
        found.append(read if isinstance(read, str) else as_record(log, read) | counted(log, read))
    return found


def counted(log: Log, values: dict[str, Any]) -> dict[str, Any]:
    """The number of a record's rounded values, if its log rounds."""
    return {ROUNDED: rounded_in(values)} if log.rounds else {}


def said(log: Log, rows: pa.Table) -> list[dict[str, Any] | str]:
    """Give the record, or the reason for rejecting it, of each row of a table, in the order of the rows' places."""
    read = rows.sort_by("_offset").to_pylist()
    counts = [{ROUNDED: row[ROUNDED] or 0} if log.rounds else {} for row in read]
    rows_ = zip(read, counts, strict=True)
    return [row["_error"] or {name: row[name] for name in log.columns} | count for row, count in rows_]


def outcome(frame: DataFrame, log: Log, records: int) -> Outcome:
    """What reading gave. Checks rule X6: every one of so many records is there once, and is either good or bad."""
    assert frame.columns == [*log.columns, "_source", "_offset", "_arrival", "_error", "_raw"]
    assert dict(frame.drop("_source", "_offset", "_arrival", "_error", "_raw").dtypes) == dict(log.columns)
    # Python has no instant as early as some of those that are to be rejected.
    instants = {name for name, type in frame.dtypes if type == "timestamp"}
    rows = frame.selectExpr(*(f"UNIX_MICROS({n}) AS {n}" if n in instants else n for n in frame.columns)).collect()
    good = [row for row in rows if row["_error"] is None]
    bad = [row for row in rows if row["_error"] is not None]
    assert len(good) + len(bad) == records, f"{len(good)} good and {len(bad)} bad of {records}"
    assert all(row["_raw"] is None for row in good)
    assert len({(row["_source"], row["_offset"]) for row in rows}) == records
    raw = [None if row["_raw"] is None else bytes(row["_raw"]) for row in bad]
    return Outcome(
        [tuple(row[name] for name in log.columns) for row in good],
        list(zip(raw, (row["_error"] for row in bad), strict=True)),
    )
