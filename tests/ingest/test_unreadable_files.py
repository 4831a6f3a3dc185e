"""Files that cannot be read: each is rejected as a whole, on every reader alike, and all others go on (rule X7)."""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tailrace import Count, Fixed, Pipeline, Sum, minutes
from tailrace.ingest import parsing, worker_landing
from tailrace.ingest.checkpoint import Checkpoint
from tailrace.ingest.landing import Landing
from tailrace.ingest.sources import Files, Format, SourceError, inspect_files
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tests.ingest.test_nested_messages import stored
from tests.ingest.test_worker_landing import lines, parquet, ride
from tests.support.lakes.avro_files import container
from tests.support.lakes.rides import RIDES
from tests.support.services.schema_registry import avro_body

TOLERANT = replace(RIDES, unknown="ignore")
HOURLY = Pipeline(
    name="hourly", log=TOLERANT, key="who", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(minutes(60))
)
GOOD = 3
"""The files that are read, 20 records each."""

READERS = {"process": ("duckdb", 1), "workers": ("spark", 0), "spark": ("spark", 10**12)}
"""The engine, and the bytes from which on executors' Python reads, of each way to read files."""


def damaged_column(file: Path, column: int) -> None:
    """Overwrite the pages of a column of a Parquet file."""
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(column)
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(file.read_bytes())
    # The header of the first page stays, as do the columns beside.
    begin, end = first + 30, first + chunk.total_compressed_size
    data[begin:end] = b"\xa5" * (end - begin)
    file.write_bytes(data)


def damaged_json(folder: Path) -> None:
    """Write files of compressed lines that cannot be read, and some that can although they look odd."""
    whole = folder / "whole.json"
    lines(whole, [ride(f"w{one % 7}", one) for one in range(500)])
    data = gzip.compress(whole.read_bytes(), mtime=0)
    whole.unlink()
    for cut in (5, 11, 40, len(data) // 2, len(data) - 9, len(data) - 1):
        (folder / f"cut {cut}%.json.gz").write_bytes(data[:cut])
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    (folder / "flipped.json.gz").write_bytes(flipped)
    (folder / "plain:named.json.gz").write_bytes(b'{"who": "a"}\n')
    for ending in ("bz2", "lz4", "snappy", "zst", "deflate"):
        (folder / f"plain.json.{ending}").write_bytes(b'{"who": "a"}\n')
    (folder / "frames.json.lz4").write_bytes(pa.compress(data, codec="lz4", asbytes=True))
    (folder / "cut.json.bz2").write_bytes(bz2.compress(data)[:-100])


def damaged_parquet(folder: Path) -> None:
    rides = [ride(f"w{one % 7}", one) for one in range(500)]
    for column in range(4):
        file = folder / f"column {column}.parquet"
        pq.write_table(
            pa.Table.from_pylist(
                rides, pa.schema({"who": pa.string(), "cents": pa.int64(), **dict.fromkeys(("day", "seen"), _AT)})
            ),
            file,
        )
        if column == 0:
            data = file.read_bytes()
            (folder / "cut.parquet").write_bytes(data[: len(data) // 2])
            (folder / "footer:cut.parquet").write_bytes(data[:-20] + data[-8:])
        damaged_column(file, column)
    (folder / "text.parquet").write_bytes(b"no columns")


_AT = pa.timestamp("us", "UTC")


def avro(file: Path, rides: list[dict[str, Any]]) -> None:
    bodies = [avro_body(stored(AVRO), one) for one in rides]
    file.write_bytes(container(AVRO, bodies, "deflate", per_block=7))


def damaged_avro(folder: Path) -> None:
    whole = folder / "whole.avro"
    avro(whole, [ride(f"w{one % 7}", one) for one in range(500)])
    data = whole.read_bytes()
    whole.unlink()
    for cut in (5, 300, len(data) // 2, len(data) - 1):
        (folder / f"cut {cut}%.avro").write_bytes(data[:cut])
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    (folder / "flipped:.avro").write_bytes(flipped)
    (folder / "text.avro").write_bytes(b"no records")


AVRO = {"type": "record", "name": "Ride", "fields": [
    {"name": "who", "type": ["null", "string"]}, {"name": "cents", "type": "long"},
    {"name": "day", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}  # fmt: skip


def landing(folder: Path, format: Format, damaged: Callable[[Path], None]) -> list[str]:
    """Fill a folder with files that can be read and others; give the names of the others."""
    folder.mkdir()
    damaged(folder)
    bad = sorted(path.name for path in folder.iterdir())
    write: Any = {"parquet": parquet, "avro": avro}.get(format, lines)
    for number in range(GOOD):
        write(folder / (f"{number}:00.{format}" if number else f"{number}.{format}"),
              [ride(f"w{one % 3}", 20 * number + one) for one in range(20)])  # fmt: skip
    # Spark reads each file apart whose path looks like a pattern: two are enough.
    (folder / "[*]").mkdir()
    for name in (bad[0], f"0.{format}"):
        (folder / name).rename(folder / "[*]" / name)
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        os.utime(path, (1_700_000_000 + number,) * 2)
    return bad


def drained(spark: SparkSession, lake: Lake, folder: Path, format: Format, per_epoch: int = 12) -> list[EpochReport]:
    found: list[EpochReport] = []
    stream = Stream(spark, lake, [HOURLY], Files(str(folder), format, per_epoch), watch=found.append)
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()
    return found


def told(lake: Lake) -> dict[str, Any]:
    """What a lake holds: the log's records, the rejected rows but for when they were, and the answers."""

    def rows(table: str, *left_out: str) -> list[str]:
        read = lake.table(table).scan().to_arrow()
        return sorted(map(repr, read.select([n for n in read.column_names if n not in left_out]).to_pylist()))

    return {
        "log": rows("rides", "_offset"),
        "rejected": rows("rides__rejected", "_arrival"),
        "answers": rows("hourly", "processing_time", "fired"),
    }


def rejected(lake: Lake) -> dict[str, tuple[int, str, Any]]:
    """The rejected rows by the name of their file."""
    rows = lake.table("rides__rejected").scan().to_arrow().to_pylist()
    found = {Path(row["_source"]).name: (row["_offset"], row["error"], row["raw"]) for row in rows}
    assert len(found) == len(rows), "a file is rejected once"
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "damaged"), [("json", damaged_json), ("parquet", damaged_parquet), ("avro", damaged_avro)]
)
def test_X7_X6_a_file_that_cannot_be_read_is_rejected_as_a_whole_and_the_others_are_read(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format,
    damaged: Callable[[Path], None],
) -> None:  # fmt: skip
    # Of Parquet there are few files.
    folder, found = tmp_path / ("landing [*]" if format == "parquet" else "landing"), []
    bad = landing(folder, format, damaged)
    for reader, (engine, worth) in READERS.items():
        given = settings.model_copy(update={"namespace": reader, "engine": engine, "windows_in_driver": 0})
        lake = Lake(given)
        with monkeypatch.context() as patch:
            patch.setattr(worker_landing, "WORTH", worth)
            reports = drained(plain, lake, folder, format, per_epoch=100)
            assert drained(plain, lake, folder, format) == []
        of_files = rejected(lake)
        assert sorted(of_files) == bad
        assert {(offset, raw) for offset, _, raw in of_files.values()} == {(0, None)}
        assert all(error.startswith(f"the file cannot be read as {format}: ") for _, error, _ in of_files.values())
        assert sum(one.landed.records for one in reports) == 20 * GOOD == len(told(lake)["log"])
        assert sum(one.landed.rejected for one in reports) == len(bad)
        found.append(told(lake))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("reader", READERS)
def test_X7_X2_a_file_that_vanishes_is_rejected_and_an_epoch_that_was_cut_off_comes_out_the_same(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    folder, (engine, worth) = tmp_path / "landing", READERS[reader]
    folder.mkdir()
    for name in ("listed.json", "looked.json.gz", "stays.json"):
        lines(folder / name, [ride(name[:1], one) for one in range(20)])
    for name, at in (("cut.json.gz", 5), ("looked.json.gz", None)):
        (folder / name).write_bytes(gzip.compress((folder / "stays.json").read_bytes())[:at])
    listing, looking, publishing = Checkpoint.files, inspect_files, Landing.publish

    def listed(*given: Any) -> list[str]:
        (folder / "listed.json").unlink(missing_ok=True)
        return listing(*given)

    def looked(*given: Any) -> Any:
        found = looking(*given)
        (folder / "looked.json.gz").unlink(missing_ok=True)
        return found

    def cut_off(landing: Landing) -> None:
        written = landing._written
        landing._written = written[:1]
        publishing(landing)
        raise OSError("no space left on device")

    monkeypatch.setattr(Checkpoint, "files", listed)
    monkeypatch.setattr(parsing, "inspect_files", looked)
    monkeypatch.setattr(worker_landing, "WORTH", worth)
    lake = Lake(settings.model_copy(update={"engine": engine, "windows_in_driver": 0}))
    with monkeypatch.context() as patch:
        patch.setattr(Landing, "publish", cut_off)
        with pytest.raises(OSError, match="no space"):
            drained(plain, lake, folder, "json")
    assert sum(one.landed.records for one in drained(plain, lake, folder, "json")) == 20 == len(told(lake)["log"])
    reasons = {name: error for name, (_, error, _) in rejected(lake).items()}
    assert reasons == {
        "listed.json": "the file is gone", "looked.json.gz": "the file is gone",
        "cut.json.gz": "the file cannot be read as json: Truncated compressed stream",
    }  # fmt: skip


def test_a_disk_that_fails_stops_the_stream_with_the_files_name_and_rejects_nothing() -> None:
    # Linux answers with an input/output error here, as for a broken sector.
    with pytest.raises(SourceError, match=r"file:/proc/self/mem cannot be read: .*Input/output error"):
        inspect_files(RIDES, "parquet", ["file:/proc/self/mem"])


def test_X7_a_file_that_alone_may_not_be_read_is_rejected_and_one_of_a_closed_folder_stops_the_stream() -> None:
    with TemporaryDirectory() as place, ExitStack() as stack:
        folders = [Path(place, name) for name in ("open", "closed")]
        for folder in folders:
            folder.mkdir()
            (folder / "a.json").write_text("{}\n")
            folder.chmod(0o755)
        Path(place).chmod(0o755)
        (folders[0] / "a.json").chmod(0)
        folders[1].chmod(0)
        if os.geteuid() == 0:
            # For root there are no permissions.
            os.seteuid(65534)
            stack.callback(os.seteuid, 0)
        (found,) = inspect_files(RIDES, "json", [f"file:{folders[0]}/a.json"])
        assert found.broken == "the file may not be read: its permissions are not those of its folder"
        with pytest.raises(SourceError, match=r"closed/a\.json cannot be read: "):
            inspect_files(RIDES, "json", [f"file:{folders[1]}/a.json"])
        stack.close()
        folders[1].chmod(0o755)
