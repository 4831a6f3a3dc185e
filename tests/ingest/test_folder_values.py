"""Values in the names of folders are columns of each record in their files, in every format and on both engines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.cli.commands.look.simulated_sample import read_samples
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.parsing import read_files
from tailrace.ingest.plain_files import read_text, read_typed
from tailrace.ingest.sources import TYPED, Files, Format, Kafka, SourceError, check_folders
from tailrace.model.base.errors import DefinitionError
from tailrace.model.logs.csv_options import Csv
from tailrace.model.logs.log import Log
from tests.ingest.test_text_files import AT, CODECS
from tests.support.depth import cases
from tests.support.lakes.avro_files import container
from tests.support.lakes.files import by_model, put
from tests.support.services.schema_registry import avro_body

FOLDERS = Log(
    name="sales", columns={"at": "timestamp", "id": "bigint", "country": "string", "day": "date"}, event_time="at",
    fields={"day": "dt"}, folders=("country", "day"), csv=Csv(header=False),
)  # fmt: skip

PLACED: Mapping[str, tuple[str | None, str | None] | str] = {
    "country=DE/dt=2026-01-02": ("DE", "2026-01-02"),
    "more=1/country=A%2FB": ("A/B", None),
    "country=__HIVE_DEFAULT_PARTITION__/dt=2026-01-03": (None, "2026-01-03"),
    "": (None, None),
    "country=DE/dt=2": "day = 2 is not a date",
}


def test_a_source_without_files_refuses_columns_from_folders() -> None:
    for format in ("json", "csv", "parquet", "avro"):
        check_folders(FOLDERS, Files("", format))
    with pytest.raises(SourceError, match="for files only"):
        check_folders(FOLDERS, Kafka("sales", "host:9092"))
    with pytest.raises(DefinitionError) as refused:
        replace(FOLDERS, columns={**FOLDERS.columns, "tags": "array<int>"}, folders=("tags", "town"))
    assert [fault.path for fault in refused.value.faults] == ["log.folders[0]", "log.folders[1]"]


def as_file(format: Format, rows: Sequence[Mapping[str, Any]]) -> bytes | pa.Table:
    """A file with these records, which have the columns of the first one."""
    if format == "json":
        return "\n".join(map(json.dumps, rows)).encode()
    if format == "csv":
        return "\n".join(f"{row['at']},{row['id']}" for row in rows).encode()
    named = [{name: row.get(name) for name in rows[0]} for row in rows]
    if format == "parquet":
        types = {"at": pa.string(), "id": pa.int64(), "country": pa.string()}
        return pa.table({name: pa.array([row[name] for row in named], types[name]) for name in rows[0]})
    kinds = {"at": "string", "id": "long", "country": ["null", "string"]}
    fields = [{"name": name, "type": kinds[name]} for name in rows[0]]
    schema = {"type": "record", "name": "Sale", "fields": fields}
    return container(schema, [avro_body(schema, row) for row in named], "deflate", 3)


def here(log: Log, format: Format, paths: Sequence[str]) -> pa.Table:
    """Read files in this process."""
    read = read_typed(log, format, paths) if format in TYPED else read_text(log, format, paths, BlankLines())
    assert read is not None
    return read


@pytest.mark.parametrize(
    ("format", "codec"), [("json", ""), ("csv", ""), ("json", ".zst"), ("parquet", ""), ("avro", "")]
)
def test_X6_values_in_the_names_of_folders_are_those_of_each_record(
    spark: SparkSession, tmp_path: Path, format: Format, codec: str
) -> None:
    paths = list[str]()
    for folder in PLACED:
        rows: list[Mapping[str, Any]] = [{"at": AT, "id": 1}]
        if format != "csv" and folder:
            rows = [{"at": AT, "id": 1, "country": None}]
            rows += [{"at": AT, "id": 2, "country": country} for country in ("DE", None, "FR")]
        file = as_file(format, rows)
        packed = CODECS[codec](file) if isinstance(file, bytes) else file
        paths += put(tmp_path / folder, {f"a.{format}{codec}": packed})
    by_spark = read_files(spark, Files("", format), FOLDERS, paths).toArrow()
    plain = [path for path in paths if "%" not in path or format in TYPED]
    found = here(FOLDERS, format, plain)
    names = ["_source", *FOLDERS.columns, "_error", "_raw"]
    told_here = sorted(map(repr, found.select(names).to_pylist()))
    told_there = sorted(map(repr, by_spark.select(names).to_pylist()))
    assert told_here == [row for row in told_there if "%" not in row or format in TYPED]
    told = dict[str, list[Any]]()
    for row in by_spark.to_pylist():
        folder = row["_source"].removeprefix(f"file:{tmp_path}").rpartition("/")[0].lstrip("/").replace("%25", "%")
        told.setdefault(folder, []).append(row["_error"] or (row["country"], row["day"] and str(row["day"])))
    other = "country has another value than the name of the folder"
    for folder, values in PLACED.items():
        expected: list[Any] = [values]
        if format != "csv" and folder:
            country, day = (None, None) if isinstance(values, str) else values
            own = [values if isinstance(values, str) else (one or country, day) for one in ("DE", None, "FR")]
            fits = [isinstance(values, str) or country in (None, one) or one is None for one in ("DE", None, "FR")]
            expected += [one if fit else other for one, fit in zip(own, fits, strict=True)]
        assert sorted(map(repr, told[folder])) == sorted(map(repr, expected)), folder


TYPES: Mapping[str, tuple[pa.DataType, Any, list[Any]]] = {
    "string": (pa.string(), "string", ["DE", "A/B", "é x", "1"]),
    "bigint": (pa.int64(), "long", [0, 1, -(2**63)]),
    "int": (pa.int32(), "int", [0, 1]),
    "double": (pa.float64(), "double", [0.1, 1.0, -0.0]),
    "boolean": (pa.bool_(), "boolean", [True, False]),
    "date": (pa.string(), "string", ["2026-01-02", "1970-01-01"]),
    "timestamp": (pa.string(), "string", ["2026-01-02T00:00:00Z", "1970-01-01T00:00:00Z"]),
}
"""For each type of a column: the type in Parquet, the type in Avro, and some values."""


@settings(max_examples=cases(60))
@given(st.data(), st.sampled_from([*TYPES]), st.booleans())
def test_X6_files_with_a_schema_have_the_same_values_of_folders_as_json(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, type: str, is_time: bool
) -> None:
    arrow, kind, values = TYPES[type]
    some = st.sampled_from(values)
    texts = some.map(lambda one: str(one).lower() if isinstance(one, bool) else str(one).replace("/", "%2F"))
    folder = data.draw(texts | st.sampled_from(["__HIVE_DEFAULT_PARTITION__", "x", ""]))
    has_own = data.draw(st.booleans())
    own = data.draw(st.lists(some | st.none(), min_size=1, max_size=6))
    own = [None if one is None or not has_own else one for one in own]
    columns = {"at": "timestamp", "id": "bigint", "value": type}
    time = "value" if type == "timestamp" and is_time else "at"
    log = Log(name="l", columns=columns, event_time=time, folders="value", required="id")
    rows = [{"at": AT, "id": None if number == 2 else number, "value": one} for number, one in enumerate(own)]
    place = tmp_path_factory.mktemp("in") / f"value={folder}"
    kinds = {"at": "string", "id": ["null", "long"], "value": ["null", kind]}
    names = [name for name in columns if has_own or name != "value"]
    schema = {"type": "record", "name": "T", "fields": [{"name": name, "type": kinds[name]} for name in names]}
    table = pa.Table.from_pylist(
        [{name: row[name] for name in names} for row in rows],
        pa.schema([(name, {"at": pa.string(), "id": pa.int64(), "value": arrow}[name]) for name in names]),
    )
    lines = [json.dumps({name: row[name] for name in names}).encode() for row in rows]
    (parquet,) = put(place, {"a.parquet": table})
    (avro,) = put(place, {"a.avro": container(schema, [avro_body(schema, row) for row in rows], "null", 2)})
    (text,) = put(place, {"a.jsonl": b"\n".join(lines)})
    expected = [_told(log, row) for row in by_model(log, lines, Path(text.removeprefix("file:")).as_uri())]
    files: Mapping[Format, str] = {"parquet": parquet, "avro": avro}
    for format, path in files.items():
        read = here(log, format, [path]).sort_by("_offset").to_pylist()
        assert [_told(log, row) for row in read] == expected
        ((_, sample),) = read_samples([log], Path(path.removeprefix("file:")))
        assert [bad.reason for bad in sample.rejected] == [one for one in expected if isinstance(one, str)]
        assert [dict(one) for one in sample.records] == [one for one in expected if not isinstance(one, str)]


def _told(log: Log, row: Any) -> Any:
    return row if isinstance(row, str) else row.get("_error") or {name: row[name] for name in log.columns}
