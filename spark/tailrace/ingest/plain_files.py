"""Read files of this machine in this process, as far as that is plain: lines of JSON, and columns of Parquet.

What is left is given back for Spark to judge: lines, or nothing but the word that the files are Spark's as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.plain_json import LINES, blank, read_lines
from tailrace.model.log import Log


def read_json(log: Log, paths: Sequence[str]) -> tuple[pa.Table, pa.Table] | None:
    """Read the plain lines of files: their records, and the lines that are left; None where a file is not plain."""
    tables = [_lines(path) for path in paths]
    if not paths or any(one is None for one in tables):
        return None
    records, left = read_lines(log, pa.concat_tables([one for one in tables if one is not None]))
    return records, left.filter(pc.invert(blank(left)))


def _lines(path: str) -> pa.Table | None:
    """The lines of a file with their places; None where Spark may read it otherwise, or it cannot be read."""
    place = local(path)
    if place is None or not _PLAIN_TEXT.search(place):
        return None
    try:
        with open(place, "rb") as file:
            data, arrived = file.read(), arrival(file.fileno())
    except OSError:
        return None
    lines = pc.list_flatten(pc.split_pattern(pa.array([data], pa.large_binary()), b"\n")).cast(pa.binary())
    if data.endswith(b"\n"):
        lines = lines[:-1]
    source, at = pa.scalar("file://" + place, pa.string()), pa.scalar(arrived, LINES.field("_arrival").type)
    places = [pa.repeat(source, len(lines)), pa.array(range(len(lines)), pa.int64()), pa.repeat(at, len(lines))]
    return pa.table([lines, *places], schema=LINES)


def local(path: str) -> str | None:
    """The path on this machine of a file by Spark's name for it; None elsewhere, and of names with odd characters."""
    parsed = urlparse(path)
    if parsed.scheme not in ("", "file") or parsed.netloc or not re.fullmatch(r"[\w./=-]+", parsed.path, re.ASCII):
        return None
    return parsed.path


def arrival(file: int) -> int:
    """When an open file was written, in microseconds as Spark has them: whole milliseconds."""
    return os.fstat(file).st_mtime_ns // 10**6 * 1000


_PLAIN_TEXT = re.compile(r"\.(?:json|jsonl|ndjson|txt|log)$")
"""How the names of files end that Spark does not decompress."""
