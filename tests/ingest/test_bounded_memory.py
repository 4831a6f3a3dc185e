"""Memory does not depend on what a file holds: it is read a slice at a time, and given up where it is too much."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import Count, Fixed, Log, Pipeline, Sum, minutes
from tailrace.ingest import compressed_text
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.column_slices import ColumnSlices
from tailrace.ingest.compressed_text import has_line_over, text_and_lines
from tailrace.ingest.decoded_sizes import check_size
from tailrace.ingest.landing_task import LandingTask
from tailrace.ingest.plain_columns import row_bytes
from tailrace.ingest.plain_files import parquet_parts, read_text, read_typed, text_parts
from tailrace.ingest.room import Room, TooLargeError
from tailrace.ingest.sources import Files, Format, file_sizes, inspect_files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tests.support.processes.peaks import begin, held, peak_of

MB = 10**6
MEMORY = 100 * MB
ROOM = MEMORY // 4
"""What an epoch's records may take of it."""

LOG = Log(name="calls", columns={"who": "string", "at": "timestamp", "cents": "bigint"}, event_time="at")
COUNTS = Pipeline(
    name="counts", log=LOG, key="who", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(minutes(60))
)
AT = datetime(2026, 1, 1, tzinfo=UTC)
LINE = json.dumps({"who": "x" * 40, "at": AT.isoformat(), "cents": 1}).encode() + b"\n"


def lines(file: Path, rows: int) -> int:
    write(file, (LINE * 1_000 for _ in range(rows // 1_000)))
    return rows


def write(file: Path, parts: Iterable[bytes]) -> None:
    codec = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}.get(file.suffix)
    with pa.CompressedOutputStream(str(file), codec) if codec else pa.OSFile(str(file), "wb") as out:
        for part in parts:
            out.write(part)


def equal_rows(file: Path, rows: int, who: str = "someone") -> int:
    columns = {
        "who": pa.repeat(pa.scalar(who), rows),
        "at": pa.repeat(pa.scalar(AT, pa.timestamp("us", "UTC")), rows),
        "cents": pa.repeat(pa.scalar(1, pa.int64()), rows),
    }
    pq.write_table(pa.table(columns), file, compression="zstd", row_group_size=rows)
    return rows


def few_long_texts(file: Path, rows: int) -> int:
    """A dictionary of which one text has a megabyte, and all rows have it but two."""
    texts = pa.DictionaryArray.from_arrays(pa.array([min(n, 2) for n in range(rows)]), ["a", "b", "z" * 2**20])
    columns = {
        "who": texts,
        "at": pa.repeat(pa.scalar(AT, pa.timestamp("us", "UTC")), rows),
        "cents": pa.repeat(pa.scalar(1, pa.int64()), rows),
    }
    pq.write_table(pa.table(columns), file, compression="zstd", store_schema=False, dictionary_pagesize_limit=2**24)
    return rows


def one_line(file: Path, megabytes: int) -> int:
    begins, ends = b'{"at": "2026-01-01T00:00:00Z", "cents": 1, "who": "', b'"}\n'
    write(file, [LINE, begins, *[b"a" * 2**20] * megabytes, ends, LINE])
    return 1


def no_lines(file: Path, megabytes: int) -> int:
    write(file, [b"\n" * 2**20] * megabytes)
    return 0


CASES: dict[str, tuple[Callable[[Path, int], int], int]] = {
    "lines.json": (lines, 500_000),
    "bomb.json.gz": (lines, 500_000),
    "bomb.json.zst": (lines, 500_000),
    "bomb.json.bz2": (lines, 200_000),
    "line.json": (one_line, 150),
    "line.json.gz": (one_line, 150),
    "blank.json": (no_lines, 3),
    "equal.parquet": (equal_rows, 2_000_000),
    "long.parquet": (lambda file, rows: equal_rows(file, rows, "someone" * 200), 300_000),
    "few.parquet": (few_long_texts, 300),
}


def made(folder: Path, name: str) -> tuple[Path, int]:
    how, size = CASES[name]
    return folder / name, how(folder / name, size)


def format_of(name: str) -> Format:
    return "parquet" if name.endswith("parquet") else "json"


def read(paths: list[str], most: int | None) -> int | str:
    """How many records are read of files into so many bytes, or why none are."""
    room = Room(most, dict(zip(paths, file_sizes(paths), strict=True)))
    try:
        if format_of(paths[0]) == "parquet":
            rows = read_typed(LOG, "parquet", paths, room)
        else:
            rows = read_text(LOG, "json", paths, BlankLines(), room)
    except TooLargeError:
        return "too large"
    if rows is not None:
        return int(rows.num_rows)
    try:
        check_size(paths, Room(most, room.files))
    except TooLargeError:
        return "too large for Spark to bring here"
    return "not plain"


def warm() -> None:
    """Have the libraries loaded that reading takes."""
    schema = pa.schema({"who": pa.string(), "at": pa.timestamp("us", "UTC"), "cents": pa.int64()})
    folder = Path(os.environ["TMPDIR"]) if "TMPDIR" in os.environ else Path("/tmp")
    for end in ("json", "parquet"):
        file = folder / f"tailrace_warm_{os.getpid()}.{end}"
        if end == "json":
            file.write_bytes(LINE)
        else:
            pq.write_table(schema.empty_table(), file)
        read([str(file)], None)
        file.unlink()


@pytest.mark.parametrize("name", CASES)
def test_reading_is_given_up_within_the_memory_whatever_a_file_holds(tmp_path: Path, name: str) -> None:
    file, rows = made(tmp_path, name)
    found, peak = peak_of(read, [str(file)], ROOM, first=warm, within=3 * MEMORY // 2)
    assert found == {"line": "too large for Spark to bring here", "blank": rows}.get(name.split(".")[0], "too large")
    assert peak < 3 * MEMORY // 2, peak


def test_many_small_files_are_given_up_as_one_large_one_is(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.json") for number in range(3_000)]
    for path in paths:
        Path(path).write_bytes(LINE * 200)
    found, peak = peak_of(read, paths, ROOM, first=warm, within=3 * MEMORY // 2)
    assert found == "too large"
    assert peak < MEMORY, peak
    assert read(paths[:50], ROOM) == 50 * 200


def land(folder: Path, path: str) -> tuple[int, int, int] | None:
    """What an executor's Python lands of a file: records, those in the files that it wrote, and blank lines."""
    lake = Lake(Settings(warehouse=folder / "lake", contracts=folder / "contracts"))
    lake.ensure(log_contract(LOG))
    task = LandingTask.of(lake, LOG, format_of(path), 0)
    assert task is not None
    part = task.land([path])
    return None if part is None else (part.records, sum(file.record_count for file in part.files), part.blank)


@pytest.mark.parametrize("name", CASES)
def test_X2_executors_land_all_of_a_file_within_a_bound(tmp_path: Path, name: str) -> None:
    file, rows = made(tmp_path, name)
    found, peak = peak_of(land, tmp_path, str(file), first=warm, within=600 * MB)
    blank = 3 * 2**20 if name.startswith("blank") else 0
    assert found == (None if name.startswith("line.") else (rows, rows, blank))
    assert peak < 550 * MB, peak


def broken(path: str) -> str:
    """Why Spark reads nothing of a file of lines."""
    return inspect_files(LOG, "json", [path])[0].broken


@pytest.mark.parametrize("name", ["line.json", "line.json.gz"])
def test_X7_a_file_with_a_line_that_fits_no_memory_is_rejected_as_a_whole(tmp_path: Path, name: str) -> None:
    file, _ = made(tmp_path, name)
    why, peak = peak_of(broken, str(file), first=warm)
    assert why == "the file has a line of more than 67,108,864 bytes: write its records on lines of their own"
    assert peak < 30 * MB, peak
    one_line(file, 80)
    larger = Log(name="l", columns=LOG.columns, event_time="at", record_bytes=100 * 2**20)
    assert [bool(inspect_files(log, "json", [str(file)])[0].broken) for log in (LOG, larger)] == [True, False]


TEXT = st.lists(
    st.sampled_from([LINE, b"\n", b" \r\n", b"\xef\xbb\xbf\n", b"no object\n", b"\xff\n", LINE[:-1] + b"\r\n"]),
    max_size=12,
)


@given(parts=TEXT, last=st.sampled_from([b"", b"\xef\xbb\xbf", LINE[:-1], b"x", b" "]), most=st.integers(1, 300))
def test_slices_of_any_size_have_the_lines_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], last: bytes, most: int
) -> None:
    file = tmp_path_factory.mktemp("lines") / "a.json"
    file.write_bytes(b"".join(parts) + last)
    found = []
    for size in (most, 1 << 20):
        blank = BlankLines()
        got = list(text_parts(LOG, "json", [str(file)], blank, size))
        rows = [row for records, _ in got for row in records.to_pylist()]
        found.append((rows, blank.here))
        assert sum(read for _, read in got) <= file.stat().st_size
    assert found[0] == found[1]
    whole = b"".join(parts) + last
    ends = whole.count(b"\n") + (not whole.endswith(b"\n") and whole not in (b"", b"\xef\xbb\xbf"))
    assert len(found[0][0]) + found[0][1] == ends


@given(
    texts=st.lists(st.sampled_from(["a", "b", "longer" * 50, "é" * 3_000, None, ""]), min_size=1, max_size=60),
    most=st.integers(1, 20_000), dictionary=st.booleans(), group=st.integers(1, 40),
)  # fmt: skip
def test_slices_of_columns_have_the_rows_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], most: int, dictionary: bool, group: int
) -> None:
    file = tmp_path_factory.mktemp("columns") / "a.parquet"
    columns = {
        "who": pa.array(texts, pa.string()),
        "at": pa.repeat(pa.scalar(AT, pa.timestamp("us", "UTC")), len(texts)),
    }
    pq.write_table(
        pa.table(columns), file, use_dictionary=dictionary, row_group_size=group, dictionary_pagesize_limit=4_000
    )
    whole = pa.concat_tables(parquet_parts(LOG, str(file), 1 << 30))
    parts = list(parquet_parts(LOG, str(file), most))
    assert pa.concat_tables(parts).equals(whole)
    assert whole["who"].to_pylist() == texts
    for part in parts:
        assert part.num_rows == 1 or part.nbytes <= 2 * most + 100
    row = row_bytes(LOG, f"file:{file}")
    with pq.ParquetFile(file) as opened:
        slices = ColumnSlices(str(file), opened, [0, 1], row, range(opened.num_row_groups))
        assert slices.decoded_bytes() >= sum(len((one or "").encode()) for one in texts)


@given(
    lengths=st.lists(st.integers(0, 40), max_size=20), most=st.integers(1, 45), ends=st.booleans(),
    codec=st.sampled_from(["", ".gz", ".deflate", ".zst", ".bz2"]),
)  # fmt: skip
def test_lines_that_are_too_long_are_found_however_they_are_compressed(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], most: int, ends: bool, codec: str
) -> None:
    text = b"\n".join(b"x" * length for length in lengths) + (b"\n" if ends else b"")
    packed = {
        "": text, ".gz": gzip.compress(text), ".deflate": zlib.compress(text), ".bz2": bz2.compress(text),
        ".zst": pa.compress(text, "zstd", asbytes=True),
    }[codec]  # fmt: skip
    file = tmp_path_factory.mktemp("long") / f"a.json{codec}"
    file.write_bytes(packed)
    with file.open("rb") as opened, pytest.MonkeyPatch.context() as patch:
        for size in ("AT_ONCE", "PROBE"):
            patch.setattr(compressed_text, size, 1)
        longest = max(len(line) for line in text.split(b"\n"))
        found = has_line_over(str(file), opened, len(packed), most)
        # Where a file is not compressed, a line's end may count as one of its bytes.
        assert found == (longest > most) or (not codec and longest == most)
    with file.open("rb") as opened:
        assert text_and_lines(str(file), opened, len(packed), 10**6) == (len(text), text.count(b"\n"))


@pytest.mark.spark
def test_X2_a_stream_lands_all_once_within_its_memory(plain: SparkSession, settings: Settings, tmp_path: Path) -> None:
    """Of each kind of file an epoch, of which none fits."""
    folder, rows, found = tmp_path / "landing", 0, list[EpochReport]()
    folder.mkdir()
    for place, name in enumerate(("bomb.json.gz", "lines.json", "line.json", "bomb.json.zst")):
        file = folder / f"{place}.{name.partition('.')[2]}"
        rows += CASES[name][0](file, 300 if name.startswith("line.") else 400_000)
        os.utime(file, (1_700_000_000 + place,) * 2)
    rows -= 1
    lake = Lake(settings.model_copy(update={"memory": "40MB"}))
    stream = Stream(plain, lake, [COUNTS], Files(str(folder), "json", per_epoch=1), watch=found.append)
    before = begin()
    stream.start(once=True)
    stream.wait()
    stream.close()
    peak = held("VmHWM") - before
    assert [(one.landed.records, one.landed.rejected) for one in found] == [
        (400_000, 0),
        (400_000, 0),
        (0, 1),
        (400_000, 0),
    ]
    assert lake.table("calls").scan().to_arrow().num_rows == rows
    assert peak < 200 * MB, peak
