"""`tailrace infer`: the definitions that it writes run on the data that they were inferred from."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.infer.definition_text import definition_text
from tailrace.infer.inference import Inferred, infer
from tailrace.infer.samples import Sample, SampleError, read_files
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.pipeline import Pipeline
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


WRITERS = {
    "json": as_json,
    "csv": as_csv,
    "odd csv": as_odd_csv,
    "parquet": as_parquet,
    "nested parquet": as_nested_parquet,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_the_definition_of_a_file_simulates_on_that_very_file(write: Callable[[Path], Path], tmp_path: Path) -> None:
    data, out = write(tmp_path), tmp_path / "sales.py"
    done = CliRunner().invoke(app, ["infer", str(data), "--out", str(out)])
    assert done.exit_code == 0, done.output
    definition = load(str(out))
    assert definition.key in (("shop",), ("shop_shop",))
    assert definition.log.declared["at"] == "timestamp"
    shown = CliRunner().invoke(app, ["simulate", str(out), str(data), "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["rejected"] == []
    again = CliRunner().invoke(app, ["infer", str(data), "--out", str(out)])
    assert again.exit_code == 2
    assert "the file is there" in again.stderr


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
        ("a.json", b"", "no record was found"), ("a.json", b"[]\n7", "no record was found (2 lines"),
        ("a.parquet", b"PAR1", "cannot be read as parquet"), ("a.csv", b"a,b\n", "no record was found"),
        ("a.csv", b'a,b\n"x', "cannot be read as csv"), ("a.gz", b"", "expected a file of JSON lines"),
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
