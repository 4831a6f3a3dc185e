"""`tailrace infer`: the definitions that it writes run on the data that they were inferred from."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.infer.csv_dialects import guessed
from tailrace.infer.definition_text import definition_text
from tailrace.infer.inference import Inferred, infer
from tailrace.infer.sample import Sample, SampleError
from tailrace.infer.samples import read_files
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.csv_options import Csv
from tailrace.model.logs.json_records import JsonRecords
from tailrace.plan.loader import load
from tests.support.depth import cases

Record = Mapping[str, Any]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def sampled(*lines: Record | str, name: str = "events") -> Sample:
    sample = Sample("json", name, name)
    for line in lines:
        sample.add_line((line if isinstance(line, str) else json.dumps(line)).encode())
    sample.parts.append(len(sample.records))
    return sample


def inferred(*lines: Record | str, name: str = "events") -> Inferred:
    return infer(sampled(*lines, name=name))


def loaded(text: str, folder: Path) -> Pipeline:
    file = folder / "inferred.py"
    file.write_text(text)
    return load(str(file))


ATOMS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6) | st.datetimes().map(str) | st.dates().map(str)
    | st.integers(1_700_000_000, 1_800_000_000) | st.sampled_from(["12.99", "01/02/2026", "14.02.2026 12:00"])
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "createdAt", "time", "userId", "user_id", "class", "kind", "price", "Ab"]) | st.text(
    max_size=5
)
VALUES = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Records of one shape or of several, each with an instant at the same place."""
    place, names = draw(st.sampled_from([("at",), ("meta", "createdAt"), ("a", "b", "ts")])), draw(st.lists(NAMES))
    made: list[Record] = []
    for _ in range(draw(st.integers(1, 6))):
        record: dict[str, Any] = {name: draw(VALUES) for name in names if draw(st.booleans())}
        inner: Any = record
        for name in place[:-1]:
            inner[name] = inner[name] if isinstance(inner.get(name), dict) else {}
            inner = inner[name]
        inner[place[-1]] = (AT + timedelta(seconds=draw(st.integers(0, 10**7)))).isoformat()
        made.append(record)
    return made


def test_each_sampled_record_fits_the_inferred_log_and_the_text_is_stable_and_formatted(tmp_path: Path) -> None:
    texts = list[str]()

    @settings(max_examples=cases(60))
    @given(records())
    def check(given: list[Record]) -> None:
        made = inferred(*given)
        assert made.rejected == {}
        text = definition_text(made)
        assert text == definition_text(inferred(*given))
        log = loaded(text, tmp_path).log
        reader = JsonRecords(log)
        for record in given:
            assert not isinstance(read := reader.read(json.dumps(record).encode()), str), read
        texts.append(text)

    check()
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"text_{number}.py").write_text(text)
    shutil.copy("pyproject.toml", folder)
    ruff = [sys.executable, "-m", "ruff"]
    for words in (("format", "--check", "--diff"), ("check",)):
        done = subprocess.run([*ruff, *words, "--no-cache", str(folder)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[:5000]


HOSTILE = st.binary(max_size=30) | st.sampled_from(
    [
        b"[" * 600, b'{"a": NaN}', b'{"a": "\\ud800"}', b"\xff{}", b"{}{}", b'{"at": 1e99999999999999999999}',
        b"{" * 3, b"7", b'{"at": [{}]}', b'{"at": {"at": "x"}}',
    ]
)  # fmt: skip


@given(st.lists(HOSTILE, max_size=4), st.integers(0, 5))
def test_X7_a_hostile_sample_gives_a_definition_or_an_error_that_says_why(lines: list[bytes], good: int) -> None:
    sample = Sample("json", "x", "x")
    for line in (*lines, *[b'{"at": "2026-01-01T00:00:00Z"}'] * good):
        sample.add_line(line)
    sample.parts.append(len(sample.records))
    if good > len(lines):
        made = infer(sample)
        assert len(made.sample.records) + made.sample.unread == len(lines) + good
        compile(definition_text(made), "x", "exec")
    else:
        with suppress(SampleError):
            infer(sample)


def test_X7_names_of_fields_cannot_become_code(tmp_path: Path) -> None:
    name = 'x"""\n\u2028import os\r\nos.abort() # \\'
    made = inferred({"at": "2026-01-01T00:00:00Z", name: 1, "deep": {name: None}, "other": [name]})
    log = loaded(definition_text(made), tmp_path).log
    assert not isinstance(JsonRecords(log).read(made.sample.raw[0]), str)


ORDERS: Sequence[Record] = [
    {
        "orderId": f"o{number}", "user": {"country": Random(number).choice(["DE", "FR", "US"]), "homeTown": None},
        "createdAt": 1_767_268_800_000 + 60_000 * number - (90_000 if number % 10 == 9 else 0),
        "total": round(Random(number).random() * 100, 2), "weight": Random(number).random() * 3,
        "items": [{"sku": "x", "unit-price": 0.5}] * (number % 3), "tags": [], "note": None,
        "any": [1, "x"][number % 2], "zip": "01234",
    }
    for number in range(200)
]  # fmt: skip


def test_what_the_records_show_is_what_the_definition_says() -> None:
    made = inferred(*ORDERS, name="orders-2026.v2")
    log = made.log()
    assert log.declared == {
        "order_id": "string", "user": "struct<country:string,home_town:json>", "created_at": "timestamp",
        "total": "decimal(18,2)", "weight": "double", "items": "array<struct<sku:string,unit_price:decimal(18,2)>>",
        "tags": "array<json>", "note": "json", "any": "json", "zip": "string",
    }  # fmt: skip
    assert (log.name, log.event_time, made.instants) == ("orders", "created_at", {"created_at": "milliseconds"})
    assert made.fields == {
        "order_id": "orderId", "user.home_town": "homeTown", "created_at": "createdAt",
        "items.unit_price": "`unit-price`",
    }  # fmt: skip
    assert made.lateness.most == timedelta(seconds=30)
    assert made.lateness.late == 20
    assert [one.path for one in made.unique] == ["order_id"]
    assert made.key is not None
    assert made.amount is not None
    assert (made.key.path, made.amount.path) == ("user.country", "total")
    text = definition_text(made)
    assert '# "any": is of several kinds: 100 numbers, 100 texts' in text
    assert '# "tags": has no element, in any record' in text


def test_a_record_id_is_taken_only_where_its_name_and_each_record_say_so() -> None:
    at = "2026-01-01T00:00:00Z"
    some = [{"at": at, "event_id": str(one), "user_id": one} for one in range(5)]
    assert inferred(*some).log().record_id == "event_id"
    # A record that came twice is one record; two records with one id have no id.
    assert inferred(*some, some[0]).log().record_id == "event_id"
    assert inferred(*some, {**some[0], "user_id": 7}).log().record_id == ()
    # A record that came again says that a source repeats records, and which column tells them.
    orders = [{"at": at, "order_id": f"o{one}", "user_id": one % 2} for one in range(5)]
    assert inferred(*orders).log().record_id == ()
    assert inferred(*orders, orders[0]).log().record_id == "order_id"
    assert inferred(*({"at": at, "user_id": one} for one in range(5))).log().record_id == ()


def test_instants_are_found_in_texts_of_any_form_and_doubtful_ones_are_left() -> None:
    made = inferred(
        {"time": "28.02.2026 12:00", "us": "02/28/2026", "both": "01/02/2026", "n": 1_767_268_800_123},
        {"time": "01.03.2026 13:00", "us": "03/01/2026", "both": "02/03/2026", "n": 1_767_268_800_124},
    )
    types = {"time": "timestamp", "us": "date", "both": "string", "n": "bigint"}
    assert (made.log().declared, made.instants) == (types, {"time": "%d.%m.%Y %H:%M", "us": "%m/%d/%Y"})
    text = definition_text(made)
    assert '# "both": may be of the form "%d/%m/%Y" or "%m/%d/%Y": set instants' in text
    assert '# "n": might be instants in milliseconds' in text
    assert '# "time": has no offset, and is read as UTC' not in text or "zone=" in text


def test_amounts_with_the_noise_of_doubles_are_rounded() -> None:
    some = [
        {"at": "2026-01-01T00:00:00Z", "total": one, "lines": [{"price": one}]} for one in (2.5, 12.99 * 3, 0.1 + 0.2)
    ]
    log = inferred(*some).log()
    assert log.declared["lines"] == "array<struct<price:decimal(18,2)>>"
    assert (log.declared["total"], log.rounding) == (
        "decimal(18,2)", {"total": "half_even", "lines.price": "half_even"},
    )  # fmt: skip


def test_many_names_are_a_map_and_objects_around_the_event_time_are_opened() -> None:
    many = [{"meta": {"ts": 1_767_268_800 + one, "host": "h"}, "by_user": {f"u{one}": 1.5}} for one in range(100)]
    log = inferred(*many).log()
    assert log.declared == {"meta_ts": "timestamp", "meta_host": "string", "by_user": "map<string,double>"}
    assert (log.event_time, dict(log.fields)) == ("meta_ts", {"meta_ts": "meta.ts", "meta_host": "meta.host"})


# ------------------------------------------------------------------------------------------------------------- files

FLAT: Sequence[Mapping[str, Any]] = [
    {
        "id": number, "at": AT + timedelta(minutes=number), "shop": "ab"[number % 2], "price": Decimal(number) / 4,
        "paid": number % 3 == 0,
    }
    for number in range(40)
]  # fmt: skip


LINES = "\n".join(json.dumps({**one, "at": one["at"].isoformat(), "price": float(one["price"])}) for one in FLAT)


def as_json(folder: Path) -> Path:
    (folder / "sales.jsonl").write_text(LINES)
    return folder / "sales.jsonl"


def as_csv(folder: Path) -> Path:
    with (folder / "sales.csv").open("w") as file:
        rows = csv.DictWriter(file, [*FLAT[0]])
        rows.writeheader()
        rows.writerows({**one, "at": one["at"].isoformat(), "paid": str(one["paid"]).lower()} for one in FLAT)
    return folder / "sales.csv"


def as_odd_csv(folder: Path) -> Path:
    """A file with semicolons, and with names that are no names of columns."""
    text = as_csv(folder).read_text().replace(",", ";").replace("price", "Unit price").replace("shop", "Shop", 1)
    (folder / "sales.csv").write_text(text)
    return folder / "sales.csv"


def as_parquet(folder: Path) -> Path:
    types = {"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "shop": pa.string(), "price": pa.decimal128(8, 2)}
    table = pa.Table.from_pylist(list(FLAT), pa.schema({**types, "paid": pa.bool_()}))
    pq.write_table(table, folder / "sales.parquet")
    return folder / "sales.parquet"


def as_nested_parquet(folder: Path) -> Path:
    item = pa.struct({"sku": pa.string(), "unitPrice": pa.decimal128(8, 2)})
    shape = {
        "Shop": pa.struct({"shop": pa.string()}),
        "items": pa.list_(item),
        "tags": pa.map_(pa.string(), pa.int32()),
    }
    rows = [
        {"at": one["at"].replace(tzinfo=None), "Shop": {"shop": one["shop"]}, "price": float(one["price"]),
         "items": [{"sku": "x", "unitPrice": one["price"]}], "tags": [("a", 1)], "raw": b"x"}
        for one in FLAT
    ]  # fmt: skip
    types = {"at": pa.timestamp("us"), **shape, "price": pa.float64(), "raw": pa.binary()}
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), folder / "sales.parquet")
    return folder / "sales.parquet"


def test_nested_columns_of_parquet_have_their_types_and_places(tmp_path: Path) -> None:
    log = infer(read_files(as_nested_parquet(tmp_path), 100)).log()
    assert log.declared == {
        "at": "timestamp", "shop": "struct<shop:string>", "items": "array<struct<sku:string,unit_price:decimal(8,2)>>",
        "tags": "map<string,int>", "price": "decimal(18,2)", "raw": "binary",
    }  # fmt: skip
    assert (dict(log.fields), log.zone) == ({"shop": "Shop", "items.unit_price": "unitPrice"}, "UTC")


def as_avro(folder: Path) -> Path:
    """A container file with logical types, an enum, a union, a nested record, and epoch milliseconds without a type."""
    item = {"type": "record", "name": "item", "fields": [{"name": "sku", "type": "string"},
                                                         {"name": "unitPrice", "type": "double"}]}  # fmt: skip
    types: dict[str, Any] = {
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "shop": {"type": "enum", "name": "s", "symbols": ["a", "b"]},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, "sentTs": "long",
        "day": {"type": "int", "logicalType": "date"},
        "local": {"type": "long", "logicalType": "local-timestamp-micros"},
        "any": ["null", "long", "string"], "items": {"type": "array", "items": item}, "note": ["null", "string"],
        "tags": {"type": "map", "values": "int"}, "raw": "bytes", "total": "double", "none": "null",
    }  # fmt: skip
    rows = [
        {
            "at": one["at"], "shop": one["shop"], "price": one["price"], "sentTs": 1_767_268_800_000 + one["id"],
            "day": one["at"].date(), "local": one["at"].replace(tzinfo=None), "any": [None, 7, "x"][one["id"] % 3],
            "items": [{"sku": "x", "unitPrice": 0.5}], "note": None, "tags": {"k": 1}, "raw": b"x",
            "total": float(one["price"]), "none": None,
        } for one in FLAT
    ]  # fmt: skip
    schema = {
        "type": "record",
        "name": "sale",
        "fields": [{"name": name, "type": type} for name, type in types.items()],
    }
    with (folder / "sales.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, codec="deflate")
    return folder / "sales.avro"


def test_columns_of_avro_have_the_types_of_its_schema_and_clocks_its_logical_types(tmp_path: Path) -> None:
    log = infer(read_files(as_avro(tmp_path), 100)).log()
    assert log.declared == {
        "at": "timestamp", "shop": "string", "price": "decimal(8,2)", "sent_ts": "timestamp", "day": "date",
        "local": "timestamp", "any": "json", "items": "array<struct<sku:string,unit_price:double>>", "note": "string",
        "tags": "map<string,int>", "raw": "binary", "total": "decimal(18,2)", "none": "json",
    }  # fmt: skip
    assert (log.instants, log.zone, log.event_time) == ({"sent_ts": "milliseconds"}, "UTC", "at")
    assert dict(log.fields) == {"sent_ts": "sentTs", "items.unit_price": "unitPrice"}


def as_array(folder: Path) -> Path:
    (folder / "sales.json").write_text(f"[{','.join(LINES.splitlines())}]")
    return folder / "sales.json"


def as_concatenated(folder: Path) -> Path:
    (folder / "sales.json").write_text("".join(json.dumps(json.loads(one), indent=1) for one in LINES.splitlines()))
    return folder / "sales.json"


def as_semicolons(folder: Path) -> Path:
    """A spreadsheet's export: cp1252, with decimal commas and a column that is mostly NULL."""
    rows = [
        f"{one['id']};{one['at'].isoformat()};{'äb'[one['id'] % 2]};{one['price']:.2f};{'NULL' if one['id'] else 5}"
        .replace(".", ",") for one in FLAT
    ]  # fmt: skip
    (folder / "sales.csv").write_bytes("\r\n".join(["id;at;shop;price;n", *rows]).encode("cp1252"))
    return folder / "sales.csv"


def as_tabs(folder: Path) -> Path:
    rows = [f"'{one['id']}'\t{one['at'].isoformat()}\t'{one['shop']}'\t'it''s\ta \"tab\"'" for one in FLAT]
    (folder / "sales.tsv").write_text("\n".join(["id\tat\tshop\tnote", *rows]))
    return folder / "sales.tsv"


def as_pipes(folder: Path) -> Path:
    """A file without a header, with epoch milliseconds, and with escaped delimiters."""
    rows = [f"{one['shop']}|{int(one['at'].timestamp() * 1000)}|a\\|b|N/A|0.5" for one in FLAT]
    (folder / "sales.csv").write_text("\n".join(rows).replace("N/A", "7", 1))
    return folder / "sales.csv"


def as_json_cells(folder: Path) -> Path:
    with (folder / "sales.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["at", "shop", "items"])
        rows.writerows((one["at"].isoformat(), one["shop"], json.dumps([{"sku": "x", "qty": 1}])) for one in FLAT)
    return folder / "sales.csv"


def as_folders(folder: Path) -> Path:
    """Folders of countries and of days, whose values are in no record; the days of the countries overlap."""
    for number, line in enumerate(LINES.splitlines()):
        place = folder / "sales" / f"country={'DE' if number % 2 else 'FR'}" / f"dt=2026-01-0{1 + number // 20}"
        place.mkdir(parents=True, exist_ok=True)
        with (place / "part-0.ndjson").open("a") as file:
            file.write(f"{line}\n")
    (folder / "sales" / "_SUCCESS").touch()
    return folder / "sales"


def in_folders(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def written(folder: Path) -> Path:
        file = write(folder)
        place = folder / "sales" / "hour=05"
        place.mkdir(parents=True)
        file.rename(place / file.name)
        return folder / "sales"

    return written


def packed(pack: Callable[[bytes], bytes], ending: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / f"sales.jsonl.{ending}").write_bytes(pack(LINES.encode()))
        return folder / f"sales.jsonl.{ending}"

    return write


def hadoops_snappy(data: bytes) -> bytes:
    part = bytes(pa.Codec("snappy").compress(data, asbytes=True))
    return len(data).to_bytes(4, "big") + len(part).to_bytes(4, "big") + part


WRITERS = {
    "json": as_json, "array": as_array, "concatenated": as_concatenated, "csv": as_csv, "odd csv": as_odd_csv,
    "semicolons": as_semicolons, "tabs": as_tabs, "pipes": as_pipes, "cells of json": as_json_cells,
    "parquet": as_parquet, "nested parquet": as_nested_parquet, "avro": as_avro, "folders": as_folders,
    "folders of avro": in_folders(as_avro), "folders of parquet": in_folders(as_parquet),
    "gzip": packed(gzip.compress, "gz"), "bzip2": packed(bz2.compress, "bz2"),
    "zstd": packed(lambda data: pa.Codec("zstd").compress(data, asbytes=True), "zst"),
    "deflate": packed(zlib.compress, "deflate"), "snappy": packed(hadoops_snappy, "snappy"),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_the_definition_of_a_file_runs_on_that_very_file_and_its_answers_count_every_record(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    data, out = write(tmp_path), tmp_path / "sales.py"
    done = CliRunner().invoke(app, ["infer", str(data), "--out", str(out)])
    assert done.exit_code == 0, done.output
    definition = load(str(out))
    assert definition.key in (("shop",), ("shop_shop",), ("column_1",), ("country",))
    assert definition.log.declared[definition.log.event_time] == "timestamp"
    shown = CliRunner().invoke(app, ["simulate", str(out), str(data), "--json"])
    assert shown.exit_code == 0, shown.output
    report = json.loads(shown.stdout)
    assert (report["rejected"], report["late"]) == ([], [])
    answers = {(*one["key"], *one["window"]): one["answer"]["records"] for one in report["panes"]}
    assert sum(answers.values()) == report["records"] == len(FLAT)
    assert ("hour" in definition.log.folders) == (data / "hour=05").exists()
    again = CliRunner().invoke(app, ["infer", str(data), "--out", str(out)])
    assert again.exit_code == 2
    assert "the file is there" in again.stderr


def text_of(file: Path) -> str:
    return definition_text(infer(read_files(file, 1000)))


def test_the_options_of_csv_are_found_and_what_is_a_guess_is_said(tmp_path: Path) -> None:
    text = text_of(as_semicolons(tmp_path))
    assert 'csv=Csv(delimiter=";", null=("", "NULL"), encoding="cp1252")' in text
    assert "read as cp1252. This is a guess" in text
    assert '"price": has numbers with a decimal comma' in text
    tabs = infer(read_files(as_tabs(tmp_path), 1000)).log()
    assert (tabs.csv, tabs.declared["id"]) == (Csv(delimiter="\t", quote="'"), "bigint")
    pipes = infer(read_files(as_pipes(tmp_path), 1000)).log()
    assert pipes.csv == Csv(delimiter="|", escape="\\", null=("", "N/A"), header=False)
    assert pipes.declared == {
        "column_1": "string", "time_2": "timestamp", "column_3": "string", "column_4": "bigint", "column_5": "double",
    }  # fmt: skip
    cells = infer(read_files(as_json_cells(tmp_path), 1000)).log()
    assert cells.declared["items"] == "array<struct<sku:string,qty:bigint>>"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize(("quote", "escape"), [('"', None), ("'", None), ('"', "\\"), (None, None)])
@pytest.mark.parametrize("header", [True, False])
def test_each_dialect_of_csv_is_found(delimiter: str, quote: str | None, escape: str | None, header: bool) -> None:
    csv = Csv(delimiter=delimiter, quote=quote, escape=escape, header=header)

    def cell(text: str) -> str:
        if quote is None:
            return text.replace(delimiter, "").replace('"', "", 1)
        inner = text.replace(quote, quote * 2 if escape is None else f"{escape}{quote}")
        return f"{quote}{inner}{quote}"

    texts = [f'say "{number}", it\'s{delimiter} so; a|b' for number in range(30)]
    rows = [delimiter.join([cell(text), f"2026-01-01 00:00:{number:02}", "1.5"]) for number, text in enumerate(texts)]
    found, _ = guessed([[line.encode() for line in ([delimiter.join(["text", "at", "n"])] if header else []) + rows]])
    assert found == csv


def test_folders_are_columns_unless_the_records_say_otherwise(tmp_path: Path) -> None:
    made = infer(read_files(as_folders(tmp_path), 1000))
    log = made.log()
    assert (log.folders, log.declared["dt"], log.declared["country"]) == (("country", "dt"), "date", "string")
    assert made.key is not None
    assert made.across >= timedelta(minutes=30)
    file = tmp_path / "logs" / "month=02" / "kind=x" / "a.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"at": "2026-02-01T00:00:00Z", "kind": "y"}')
    other = infer(read_files(file, 10))
    assert (other.log().folders, other.log().declared["month"], other.name) == (("month",), "bigint", "a")
    assert "folders kind=… are not used" in definition_text(other)


def test_infer_and_simulate_run_without_spark(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["pyspark"] = None
from tailrace.cli.main import app
from typer.testing import CliRunner
for data in sys.argv[1:]:
    for words in (["infer", data, "--out", data + ".py"], ["simulate", data + ".py", data]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
"""
    files = [str(write(tmp_path)) for write in (as_avro, as_parquet, as_csv)]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_sample_reads_no_more_than_its_bounds(tmp_path: Path) -> None:
    line = f'{{"at": "2026-01-01T00:00:00Z", "text": "{"x" * 500_000}"}}\n'
    for name in "ab":
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(line.encode() * 100))
    sample = read_files(tmp_path, 10**6)
    assert 2**26 - 2**21 < sum(map(len, sample.raw)) <= 2**26
    assert (sample.unread, sample.whole) == (0, False)
    (tmp_path / "c.json").write_text(f'{{"at": "{"x" * 2**21}"}}\n{line}')
    sample = read_files(tmp_path / "c.json", 10)
    assert (len(sample.records), sample.skipped, sample.unread) == (1, 1, 0)


def test_X7_an_instant_beyond_all_calendars_in_parquet_costs_its_own_record(tmp_path: Path) -> None:
    times = pa.array([0, 1, 2**62, 3], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": times, "n": [1, 2, 3, 4]}), tmp_path / "a.parquet")
    sample = read_files(tmp_path / "a.parquet", 10)
    assert ([one["n"] for one in sample.records], sample.unread, sample.whole) == (["1", "2", "4"], 1, True)


def test_what_a_log_would_reject_is_said_for_each_format(tmp_path: Path) -> None:
    file = as_csv(tmp_path)
    file.write_text(f'{file.read_text()}41,"x\n42,1,2,3,4,5,6\n')
    assert "In 1 lines, quotes are not paired on the line." in text_of(file)
    (tmp_path / "a.csv").write_text("at,n,n,\n2026-01-01T00:00:00Z,1,2,3\n")
    text = text_of(tmp_path / "a.csv")
    assert 'unknown="ignore"' in text
    assert '"n" (several columns with one name)' in text
    for number, (cells, type) in enumerate([([1] * 5, pa.int64()), ([None] * 5, pa.string())]):
        rows = {
            "at": pa.array([AT] * 5, pa.timestamp("us", "UTC")),
            "n": pa.array(cells, type),
        }
        folder = tmp_path / "typed"
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table(rows), folder / f"{number}.parquet")
    assert "5 of these records will be rejected: column 'n' is string, declared as bigint" in text_of(
        tmp_path / "typed"
    )


def test_a_part_of_a_folder_is_read_and_compressed_files_too(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "b.json.bz2").write_bytes(bz2.compress(LINES.encode()))
    (tmp_path / "_SUCCESS").touch()
    sample = read_files(tmp_path, 30)
    assert (len(sample.records), sample.parts, sample.whole) == (30, [15, 15], False)
    assert infer(sample).log().rest == "extra"
    assert infer(read_files(tmp_path, 1000)).log().rest is None


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.json", b"", "no record was found"), ("a.json", b"[]\n7", "no record was found (unreadable lines: 1)"),
        ("a.parquet", b"PAR1", "cannot be read as parquet"), ("a.csv", b"a,b\n", "no record was found"),
        ("a.csv", b'a,b\n"x', "(unreadable lines: 1)"), ("a.gz", b"", "expected a file of JSON, CSV, Parquet or Avro"),
        ("a.json.gz", b"\x1f\x8bx", "cannot be read as json"), ("a.json", b'{"x": 1}', "no field has instants"),
    ],
)  # fmt: skip
def test_a_file_without_records_is_refused_with_the_reason(name: str, data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TailraceError) as error:
        infer(read_files(tmp_path / name, 100))
    assert reason in str(error.value)


def test_a_name_that_is_no_file_is_a_topic_and_needs_brokers() -> None:
    done = CliRunner().invoke(app, ["infer", "orders"])
    assert done.exit_code == 2
    assert "orders: no such file or folder: for a Kafka topic, pass --bootstrap" in done.stderr
