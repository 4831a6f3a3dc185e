"""Text files as they are: each engine reads the same records, however they are laid out, compressed and cut."""

from __future__ import annotations

import bz2
import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import Csv, Log
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.micro_batch import file_rows
from tailrace.ingest.parsing import read_files
from tailrace.ingest.plain_files import read_text
from tailrace.ingest.sources import Files, Format
from tailrace.model.logs.log import SCANNED
from tests.support.lakes.files import put

LOG = Log(
    name="orders", columns={"at": "timestamp", "id": "bigint", "tags": "array<string>"}, event_time="at",
    csv=Csv(delimiter="|", null="-"),
)  # fmt: skip
AT = "2026-01-01T12:00:00Z"


def snappy(text: bytes, block: int = 1_000) -> bytes:
    """Compress as Hadoop does: blocks with the length of their text, of parts with their compressed lengths."""
    made = b""
    for at in range(0, len(text), block):
        parts = [text[at : at + block][start : start + 300] for start in range(0, min(block, len(text) - at), 300)]
        made += sum(map(len, parts)).to_bytes(4, "big")
        for part in parts:
            packed = pa.compress(part, "snappy", asbytes=True)
            made += len(packed).to_bytes(4, "big") + packed
    return made


CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".deflate": zlib.compress, ".snappy": snappy,
    ".zst": lambda text: bytes(pa.compress(text, "zstd", asbytes=True)),
}  # fmt: skip


def as_csv(records: Sequence[Mapping[str, Any]]) -> bytes:
    rows = [["at", "id", "tags"], *([one["at"], str(one["id"]), json.dumps(one["tags"])] for one in records)]
    return "".join("|".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows).encode()


LAYOUTS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], bytes]] = {
    "lines.json": lambda records: "".join(json.dumps(one) + "\n" for one in records).encode(),
    "array.json": lambda records: json.dumps(records).encode(),
    "pretty.json": lambda records: json.dumps(records, indent=2).encode(),
    "objects.json": lambda records: "\n".join(json.dumps(one, indent=2) for one in records).encode(),
    "joined.json": lambda records: "".join(map(json.dumps, records)).encode(),
    "lines.csv": as_csv,
}


def format_of(name: str) -> Format:
    return "csv" if ".csv" in name else "json"


def values(rows: list[dict[str, Any]]) -> list[str]:
    """The records that were read, and the reasons for rejecting others, without their places and bytes."""
    return [(row["_error"] or repr([row[name] for name in LOG.columns])).replace(chr(34), "") for row in rows]


def in_order(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], int]:
    """The key of rows that brings them into the order of these rows."""
    order = {(row["_source"], row["_offset"]): place for place, row in enumerate(rows)}
    return lambda row: order[row["_source"], row["_offset"]]


RECORDS = st.lists(
    st.fixed_dictionaries({
        "at": st.sampled_from([AT, AT, AT, "noon"]), "id": st.integers(0, 2**63),
        "tags": st.lists(st.text(alphabet='ab"\\{}[],é ', max_size=4), max_size=3),
    }),
    min_size=2, max_size=8,
)  # fmt: skip


@given(RECORDS, st.sampled_from([*LAYOUTS]), st.sampled_from([*CODECS]), st.integers(1, 7))
def test_X6_records_are_the_same_in_any_layout_compression_and_cut_into_files(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], layout: str, codec: str, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    parts = [part for part in (records[:cut], records[cut:]) if len(part)]
    files = {f"{n}.{layout}{codec}": CODECS[codec](LAYOUTS[layout](part)) for n, part in enumerate(parts)}
    found = read_text(LOG, format_of(layout), put(folder, files), BlankLines())
    whole = read_text(LOG, "json", put(folder, {"whole.json": LAYOUTS["lines.json"](records)}), BlankLines())
    assert found is not None
    assert whole is not None
    assert values(found.to_pylist()) == values(whole.to_pylist())


@pytest.mark.parametrize("format", ["json", "csv"])
def test_X6_both_engines_read_every_layout_and_compression_with_the_same_places(
    spark: SparkSession, tmp_path: Path, format: Format
) -> None:
    records = [{"at": AT if n % 5 else "noon", "id": n, "tags": ["a", "}", '"'][: n % 4]} for n in range(20)]
    files = {
        f"{layout}{codec}": pack(made(records) + b"\n \n")
        for layout, made in LAYOUTS.items() for codec, pack in CODECS.items() if format_of(layout) == format
    }  # fmt: skip
    files |= {f"a b%{name}": content for name, content in files.items() if ".zst" in name}
    paths, blank, counted = put(tmp_path, files), BlankLines(), BlankLines()
    by_spark = read_files(spark, Files("", format), LOG, paths, blank).toArrow()
    here = file_rows(spark, Files("", format), LOG, [path for path in paths if "%" not in path], counted)
    assert len(by_spark) == 20 * len(files)
    assert blank.total == 2 * len([name for name in files if name.startswith("lines") or "%lines" in name])
    assert {source for source in by_spark["_source"].to_pylist() if "%" in source} == {
        f"file:{tmp_path}/a%20b%25{name[4:]}" for name in files if name.startswith("a b")
    }
    # Spark divides the plain file of lines, and counts its lines in its own way.
    divided = f"file:{tmp_path}/lines.{format}"
    scanned = [row["_offset"] for row in by_spark.to_pylist() if row["_source"] == divided]
    assert min(scanned) >= SCANNED, "such a number could be taken for a line's"
    of_whole_files = [row for row in by_spark.to_pylist() if "%" not in row["_source"] and row["_source"] != divided]
    of_whole_files.sort(key=in_order(here.to_pylist()))
    assert [row for row in here.to_pylist() if row["_source"] != divided] == of_whole_files
    assert {(row["_source"], *values([row])) for row in here.to_pylist() if row["_source"] == divided} == {
        (row["_source"], *values([row])) for row in by_spark.to_pylist() if row["_source"] == divided
    }


def test_what_hadoop_compresses_with_snappy_is_read(spark: SparkSession, tmp_path: Path) -> None:
    line = json.dumps({"at": AT, "id": 1, "tags": ["x" * 100]})
    rows = spark.range(20_000).selectExpr(f"'{line}' AS value").coalesce(1)
    rows.write.option("compression", "snappy").text(str(tmp_path / "made"))
    (file,) = (tmp_path / "made").glob("*.txt.snappy")
    found = read_text(LOG, "json", [f"file:{file}"], BlankLines())
    assert found is not None
    assert (len(found), found["_error"].null_count) == (20_000, 20_000)
