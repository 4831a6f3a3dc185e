"""Records as they are: nested JSON of any shape, read in this process and on executors as the model's reader has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.ingest.json_reader import read_lines
from tailrace.ingest.parsing import read_files
from tailrace.ingest.sources import Files
from tailrace.model.base.json_scalars import ROUNDINGS
from tailrace.model.base.types import element_type, map_value, struct_fields
from tailrace.model.logs.log import Log
from tests.support.depth import cases
from tests.support.lakes.files import by_model, lines, put, said
from tests.support.services.schema_registry import as_lines

ORDERS = Log(
    name="orders",
    columns={
        "order_id": "string", "country": "string", "at": "timestamp", "paid": "date", "opens": "time",
        "items": "array<struct<sku:string,price:double,parts:array<decimal(6,2)>>>", "tags": "map<string,int>",
        "user_info": "struct<id:bigint,seen:timestamp>", "key": "binary", "weight": "float", "note": "json",
    },
    fields={
        "order_id": "orderId", "country": "user.`home country`", "items.price": "unit.price", "at": "createdAt",
        "user_info": "user.info",
    },
    instants={"at": "milliseconds", "paid": "%d.%m.%Y", "user_info.seen": "seconds"},
    event_time="at", unknown="ignore", elements=4,
)  # fmt: skip

WHOLE = {
    "orderId": "a", "createdAt": 1767268800123, "paid": "28.02.2026", "opens": "08:30",
    "user": {"home country": "DE", "info": {"id": 7, "seen": 1767268800}},
    "items": [{"sku": "x", "unit": {"price": 0.1}, "parts": [1.5, None]}, None, {}], "tags": {"b": 2, "a": 1},
    "key": "AAH/", "weight": 0.1, "note": {"deep": [1.10, {"x": None}]}, "more": 1,
}  # fmt: skip
AT = datetime(2026, 1, 1, 12, 0, 0, 123000, tzinfo=UTC)


def read(log: Log, *texts: str) -> list[Mapping[str, Any] | str]:
    raw = [text.encode() for text in texts]
    found = said(log, read_lines(log, as_lines(raw)))
    assert found == by_model(log, raw)
    return list(found)


def test_values_are_taken_from_their_places_whatever_their_names() -> None:
    text = json.dumps(WHOLE).replace("1.1,", "1.10,")
    (found,) = read(ORDERS, text)
    assert found == {
        "order_id": "a", "country": "DE", "at": AT, "paid": datetime(2026, 2, 28).date(), "opens": "08:30:00.000000",
        "items": [
            {"sku": "x", "price": 0.1, "parts": [Decimal("1.50"), None]}, None,
            {"sku": None, "price": None, "parts": None},
        ],
        "tags": [{"key": "a", "value": 1}, {"key": "b", "value": 2}],
        "user_info": {"id": 7, "seen": AT.replace(microsecond=0)},
        "key": b"\x00\x01\xff", "weight": 0.10000000149011612, "note": '{"deep": [1.10, {"x": null}]}',
    }  # fmt: skip


MANY = "a list of more than 4 elements: set elements in the log"
MISFITS: Mapping[str, tuple[dict[str, Any], str]] = {
    "deep": ({"items": [{}, {"unit": {"price": "x"}}]}, 'items[1].price = "x" is not a double'),
    "a list": ({"items": {"sku": "x"}}, 'items = {"sku":"x"} is not a list'),
    "an object": ({"items": [7]}, "items[0] = 7 is not an object"),
    "on the way": ({"user": "x"}, 'user = "x" is not an object'),
    "a part": ({"items": [{"parts": [1, "2"]}]}, 'items[0].parts[1] = "2" is not a decimal(6,2)'),
    "a map": ({"tags": {"a": "1"}}, 'tags["a"] = "1" is not a int'),
    "many": ({"items": [None] * 5}, f"items is {MANY}"),
    "many entries": ({"tags": dict.fromkeys("abcde")}, f"tags is {MANY}"),
    "no day": ({"paid": "2026-02-28"}, 'paid = "2026-02-28" is not a date'),
    "bytes": ({"key": "A"}, 'key = "A" is not a binary'),
    "text for milliseconds": ({"createdAt": "2026-01-01T12:00:00Z"}, 'at = "2026-01-01T12:00:00Z" is not a timestamp'),
    "far": (
        {"user": {"info": {"seen": 10**12}}}, "user_info.seen = +33658-09-27 01:46:40 lies outside the years 1 to 9999"
    ),
    "two": ({"opens": 8, "weight": "1"}, 'opens = 8 is not a time; weight = "1" is not a float'),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_X6_what_does_not_fit_is_rejected_with_its_place_inside_the_record(name: str) -> None:
    changed, reason = MISFITS[name]
    assert read(ORDERS, json.dumps({**WHOLE, **changed})) == [reason]


def test_X6_a_record_with_more_levels_than_its_log_allows_is_rejected() -> None:
    log = replace(ORDERS, depth=5)
    note = json.dumps({**WHOLE, "note": [[[[[]]]]]})
    assert read(log, json.dumps(WHOLE), note, json.dumps({**WHOLE, "more": "[" * 600}))[1:] == [
        "nested more than 5 levels deep: set depth in the log", read(ORDERS, json.dumps(WHOLE))[0]
    ]  # fmt: skip


def test_fields_that_nobody_declared_are_kept_as_they_came() -> None:
    columns = {"at": "timestamp", "id": "string"}
    log = Log(name="l", columns=columns, event_time="at", rest="extra", fields={"id": "a.id"})
    at = '"at": "2026-01-01T12:00:00Z"'
    found = read(log, f'{{"b": 1.10, {at}, "C": {{"x" : [ ]}}, "a": {{"id": "i"}}}}', f"{{{at}}}")
    assert [one["extra"] for one in found if isinstance(one, Mapping)] == ['{"b":1.10,"C":{"x" : [ ]}}', None]
    assert log.columns["extra"] == "string"
    assert log.declared["extra"] == "json"


def test_local_times_are_read_with_the_rule_for_the_doubled_and_the_missing_hour() -> None:
    log = Log(name="l", columns={"at": "timestamp"}, event_time="at", zone="Europe/Berlin")
    texts = ["2026-07-01T12:00:00", "2026-10-25T02:30:00", "2026-03-29T02:30:00", "2026-07-01T12:00:00Z"]
    found = read(log, *(json.dumps({"at": text}) for text in texts))
    assert [one["at"].isoformat() for one in found if isinstance(one, Mapping)] == [
        "2026-07-01T10:00:00+00:00", "2026-10-25T00:30:00+00:00", "2026-03-29T01:30:00+00:00",
        "2026-07-01T12:00:00+00:00",
    ]  # fmt: skip


def test_decimals_are_rounded_where_the_log_says_so_and_else_rejected() -> None:
    columns = {"at": "timestamp", "total": "decimal(4,2)", "parts": "array<struct<x:decimal(6,1)>>"}
    exact = Log(name="l", columns=columns, event_time="at")
    at = '"at": "2026-01-01T12:00:00Z"'
    totals = ["38.970000000000006", "0.125", "0.135", "-0.125", "99.994", "99.995", "1e-30", "123", "5e999", "0.1"]
    texts = [f'{{{at}, "total": {total}}}' for total in totals]
    expected: Mapping[str, list[str | None]] = {
        "half_even": ["38.97", "0.12", "0.14", "-0.12", "99.99", None, "0.00", None, None, "0.10"],
        "half_up": ["38.97", "0.13", "0.14", "-0.13", "99.99", None, "0.00", None, None, "0.10"],
        "down": ["38.97", "0.12", "0.13", "-0.12", "99.99", "99.99", "0.00", None, None, "0.10"],
    }
    for mode, made in expected.items():
        found = read(replace(exact, rounding=mode), *texts)
        shown = [str(one["total"]) if isinstance(one, Mapping) else None for one in found]
        assert shown == made
    assert sum(isinstance(one, str) for one in read(exact, *texts)) == 9
    inner = replace(exact, rounding={"parts.x": "half_even"})
    (one, two) = read(inner, f'{{{at}, "parts": [{{"x": 1.25}}]}}', f'{{{at}, "total": 0.125}}')
    assert isinstance(one, Mapping)
    assert one["parts"] == [{"x": Decimal("1.2")}]
    assert two == "total = 0.125 is not a decimal(4,2)"


# -------------------------------------------------------------------------------------------------------- any shape

ATOMS: Mapping[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=4), "boolean": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1), "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False), "binary": st.sampled_from(["", "AAH/"]),
    "decimal(8,3)": st.decimals(-(10**4), 10**4, places=3).map(float) | st.floats(-(10.0**5), 10.0**5),
    "date": st.dates().map(str),
    "timestamp": st.datetimes().map(lambda at: at.isoformat() + "Z"), "time": st.times().map(str),
    "json": st.sampled_from([{}, [1], None, "x", 1.5]),
}  # fmt: skip
NAMES = ("a", "b", "c")
TYPES = st.recursive(
    st.sampled_from([*ATOMS]),
    lambda inner: (
        inner.map(lambda one: f"array<{one}>")
        | inner.map(lambda one: f"map<string,{one}>")
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda some: f"struct<{','.join(f'{n}:{one}' for n, one in zip(NAMES, some, strict=False))}>"
        )
    ),
    max_leaves=5,
)
ANY = st.sampled_from([None, 0, -1, "x", True, 1.5, [], {}, [None], {"a": 1}, 2**70, "2026-01-01T00:00:00Z"])


def values(type: str) -> st.SearchStrategy[Any]:
    """Values of a type, of which some do not fit."""
    if (element := element_type(type)) is not None:
        own: st.SearchStrategy[Any] = st.lists(values(element), max_size=3)
    elif (value := map_value(type)) is not None:
        own = st.dictionaries(st.text(max_size=2), values(value), max_size=3)
    elif (fields := struct_fields(type)) is not None:
        own = st.fixed_dictionaries({}, optional={name: values(one) for name, one in fields.items()})
    else:
        own = ATOMS[type]
    return st.integers(0, 40).flatmap(lambda n: ANY if n == 0 else st.none() if n < 3 else own)


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, list[bytes]]:
    """A log of any columns, and records of it, some of which are spoiled."""
    types = draw(st.lists(TYPES, min_size=1, max_size=4))
    columns = {f"c{n}": type for n, type in enumerate(types)}
    places = {name: draw(st.sampled_from([name, f"in.{name}", f"`{name} of`", f"in.deep.{name}"])) for name in columns}
    log = Log(
        name="any", columns={"at": "timestamp", **columns}, event_time="at", fields=places,
        unknown=draw(st.sampled_from(["reject", "ignore"])), rest=draw(st.sampled_from([None, None, "extra"])),
        rounding=draw(st.sampled_from([None, *ROUNDINGS])),
    )  # fmt: skip
    texts = []
    for _ in range(draw(st.integers(1, 6))):
        record: dict[str, Any] = {"at": "2026-01-01T12:00:00Z"}
        for name, type in columns.items():
            *way, last = places[name].replace("`", "").split(".")
            inner = record
            for step in way:
                inner = inner.setdefault(step, {})
            inner[last] = draw(values(type))
        if draw(st.integers(0, 8)) == 0:
            record["more"] = draw(ANY)
        text = json.dumps(record, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
        if draw(st.integers(0, 12)) == 0:
            text = text[: draw(st.integers(0, len(text)))] + draw(st.sampled_from([b"", b"}", b'"', b",", b"\xff"]))
        texts.append(text)
    return log, texts


@settings(max_examples=cases(150))
@given(logs())
def test_X6_nested_records_of_any_shape_are_read_as_the_model_does(made: tuple[Log, list[bytes]]) -> None:
    log, texts = made
    rows = read_lines(log, as_lines(texts))
    assert said(log, rows) == by_model(log, texts)
    bad = rows.filter(pc.is_valid(rows["_error"]))
    assert bad["_raw"].to_pylist() == [texts[place] for place in bad["_offset"].to_pylist()]


def mutated(count: int, seed: int = 1) -> list[bytes]:
    """Records of ORDERS, most of which have lost, doubled or changed some bytes, or have a part of another record."""
    chance, found = Random(seed), list[bytes]()
    changes = [{}, *(changed for changed, _ in MISFITS.values()), {"items": None, "tags": {}}, {"note": [[]] * 3}]
    whole = [json.dumps({**WHOLE, **changed}).encode() for changed in changes]
    while len(found) < count:
        text = bytearray(chance.choice([whole[0], chance.choice(whole)]))
        for _ in range(chance.choice([0, 1, 1, 2])):
            at, other = chance.randrange(len(text)), chance.choice(whole)
            start = chance.randrange(len(other))
            part = other[start : start + chance.randrange(1, 12)]
            own = chance.choice([b"", bytes([chance.choice(_BYTES)]), text[at : at + 8] * 2, part])
            text[at : at + chance.choice([0, 1, 8])] = own
        if text.strip(b" \t\r"):
            found.append(bytes(text))
    return found


_BYTES = [*b'{}[]":,\\ \t-+.eE0123456789ntfNIu\xff\xc3\xbf\x00\x1f']


def test_X6_twenty_thousand_mutated_records_are_read_alike_by_the_model_this_process_and_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = mutated(20_000)
    expected = by_model(ORDERS, texts)
    assert 2_000 < sum(isinstance(one, str) for one in expected) < 18_000
    assert said(ORDERS, read_lines(ORDERS, as_lines(texts))) == expected
    paths = put(tmp_path, {"a.json": lines(*texts)})
    assert said(ORDERS, read_files(spark, Files(str(tmp_path)), ORDERS, paths).toArrow()) == expected
