"""Messages in Confluent's wire format: every record that a schema wrote comes out whole, any other with its bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.ingest import column_values
from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.model.logs.log import Log
from tests.support.services.schema_registry import as_lines, avro_body, framed

THINGS = Log(
    name="things",
    columns={
        "at": "timestamp", "id": "string", "n": "bigint", "small": "int", "ratio": "double", "price": "decimal(10,2)",
        "day": "date", "ok": "boolean",
    },
    event_time="at",
    unknown="ignore",
    messages="avro",
    aliases={"at": ("happened", "ts"), "price": "cost", "n": "count"},
)  # fmt: skip
START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Way:
    """A way in which schemas have a column: the type, its values as they are stored, and what each is in the column."""

    type: Any
    stored: st.SearchStrategy[Any]
    as_column: Any = staticmethod(lambda value: value)


def logical(type: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "logicalType": name, **more}


def signed(number: int) -> bytes:
    return number.to_bytes(max(1, (number.bit_length() + 8) // 8), "big", signed=True)


LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(max_size=6)
SECONDS = st.integers(-(2**31), 2**32)
WAYS: Mapping[str, Sequence[Way]] = {
    "at": [
        Way(logical("long", "timestamp-millis"), SECONDS, lambda n: START + timedelta(milliseconds=n)),
        Way(logical("long", "timestamp-micros"), SECONDS, lambda n: START + timedelta(microseconds=n)),
        Way(logical("long", "timestamp-nanos"), SECONDS, lambda n: START + timedelta(microseconds=n // 1000)),
    ],
    "id": [
        Way("string", TEXTS),
        Way("bytes", TEXTS.map(str.encode), bytes.decode),
        Way(logical("string", "uuid"), st.uuids().map(str)),
        Way({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB")),
        Way({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, st.binary(min_size=16, max_size=16),
            lambda of: str(UUID(bytes=of))),
        Way(logical("int", "time-millis"), st.integers(0, 86_399_999),
            lambda n: (datetime.min + timedelta(milliseconds=n)).time().isoformat("milliseconds")),
        Way(logical("long", "time-micros"), st.integers(0, 86_399_999_999),
            lambda n: (datetime.min + timedelta(microseconds=n)).time().isoformat("microseconds")),
    ],
    "n": [Way("long", LONGS), Way("int", INTS)],
    "small": [Way("int", INTS)],
    "ratio": [
        Way("double", st.floats(allow_nan=False)),
        Way("float", st.floats(width=32, allow_nan=False)),
        Way("long", st.integers(-(2**53), 2**53), float),
        Way("int", INTS, float),
    ],
    "price": [
        Way(logical("bytes", "decimal", precision=10, scale=2), st.integers(-(10**10) + 1, 10**10 - 1).map(signed),
            lambda of: Decimal(int.from_bytes(of, "big", signed=True)) / 100),
        Way(logical("bytes", "decimal", precision=6), st.integers(-(10**6) + 1, 10**6 - 1).map(signed),
            lambda of: Decimal(int.from_bytes(of, "big", signed=True))),
        Way({"type": "fixed", "size": 5, "name": "D", "logicalType": "decimal", "precision": 8, "scale": 1},
            st.integers(-(10**8) + 1, 10**8 - 1).map(lambda n: n.to_bytes(5, "big", signed=True)),
            lambda of: Decimal(int.from_bytes(of, "big", signed=True)) / 10),
    ],
    "day": [Way(logical("int", "date"), st.integers(-100_000, 100_000), lambda n: date(1970, 1, 1) + timedelta(n))],
    "ok": [Way("boolean", st.booleans())],
}  # fmt: skip
MORE: Sequence[tuple[Any, Any]] = (
    ({"type": "array", "items": "string"}, ["x", "y"]),
    ({"type": "map", "values": "long"}, {"x": 1}),
    ({"type": "record", "name": "Inner", "fields": [{"name": "a", "type": ["null", "long"]}]}, {"a": 5}),
    (["null", "string", "long"], "either"),
)
"""Fields that no column has."""


@dataclass(frozen=True)
class Written:
    """A schema of the log's history, records that it wrote, and what they are in the log's columns."""

    schema: Any
    records: list[dict[str, Any]]
    columns: list[dict[str, Any]]


def _both(way: Way, stored: tuple[Any]) -> tuple[Any, Any]:
    return stored[0], way.as_column(stored[0])


@st.composite
def written(draw: st.DrawFn) -> Written:
    """A schema of some of the columns, renamed, of other types and with fields of its own, and what it wrote."""
    fields, values = list[dict[str, Any]](), dict[str, tuple[str, st.SearchStrategy[tuple[Any, Any]]]]()
    for column, ways in WAYS.items():
        if column != "at" and draw(st.integers(0, 4)) == 0:
            continue
        way = draw(st.sampled_from(ways))
        name = draw(st.sampled_from([column, column, *THINGS.names_of(column)]))
        pairs = st.tuples(way.stored).map(partial(_both, way))
        kind = draw(st.integers(0, 2)) if column != "at" else 0
        type = way.type if kind == 0 else ["null", way.type] if kind == 1 else [way.type, "null"]
        fields.append({"name": name, "type": type})
        values[column] = (name, pairs if kind == 0 else st.none().map(lambda _: (None, None)) | pairs)
    extra = draw(st.lists(st.sampled_from(range(len(MORE))), unique=True))
    fields += [{"name": f"more_{one}", "type": MORE[one][0]} for one in extra]
    schema = {"type": "record", "name": "Thing", "namespace": "of.tests", "fields": draw(st.permutations(fields))}
    records, columns = [], []
    for _ in range(draw(st.integers(1, 4))):
        drawn = {column: (name, *draw(pair)) for column, (name, pair) in values.items()}
        records.append({name: value for name, value, _ in drawn.values()} | {f"more_{e}": MORE[e][1] for e in extra})
        columns.append({column: drawn[column][2] if column in drawn else None for column in THINGS.columns})
    return Written(schema, records, columns)


def stored(schema: Any) -> Any:
    """The schema without what its values stand for, so that they are written as they are given."""
    whole = json.loads(json.dumps(schema))
    for field in whole["fields"]:
        for one in field["type"] if isinstance(field["type"], list) else [field["type"]]:
            if isinstance(one, dict):
                one.pop("logicalType", None)
    return whole


def readable(id: int, schema: Any) -> ReadableSchema:
    return ReadableSchema(RegisteredSchema(id, "AVRO", schema if isinstance(schema, str) else json.dumps(schema)))


def read(log: Log, schemas: Mapping[int, ReadableSchema], values: Sequence[bytes | None]) -> list[dict[str, Any]]:
    """What reading gave, in the order of the messages: each is there once, rejected with its own bytes or not."""
    table = framed_records(log, schemas, as_lines(values))
    # A rejected record's instant may be one that Python does not have.
    bad = table.filter(pc.is_valid(table["_error"])).select(["_offset", "_error", "_raw"]).to_pylist()
    rows = sorted([*table.filter(pc.is_null(table["_error"])).to_pylist(), *bad], key=lambda row: int(row["_offset"]))
    assert [row["_offset"] for row in rows] == list(range(len(values)))
    for row, value in zip(rows, values, strict=True):
        assert row["_raw"] == (value if row["_error"] else None)
        assert row["_error"] is None or row["_error"]
    return rows


def columns(log: Log, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in log.columns} for row in rows]


@given(st.lists(written(), min_size=1, max_size=3))
def test_X6_what_evolved_schemas_wrote_comes_out_as_the_logs_columns(all: list[Written]) -> None:
    messages = [
        framed(id, avro_body(stored(one.schema), record)) for id, one in enumerate(all, 1) for record in one.records
    ]
    rows = read(THINGS, {id: readable(id, one.schema) for id, one in enumerate(all, 1)}, messages)
    assert [row["_error"] for row in rows] == [None] * len(messages)
    assert columns(THINGS, rows) == [record for one in all for record in one.columns]


THING = {
    "type": "record", "name": "Thing", "fields": [
        {"name": "at", "type": logical("long", "timestamp-millis")}, {"name": "id", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "n", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "long"}},
        {"name": "ok", "type": "boolean"}, {"name": "ratio", "type": "double"},
    ]}  # fmt: skip
WHOLE = avro_body(THING, {"at": START, "id": "né", "kind": "b", "n": -7, "tags": [1, 2], "ok": True, "ratio": 0.5})


@st.composite
def spoiled(draw: st.DrawFn, body: bytes = WHOLE) -> bytes:
    """A body with bytes cut off, changed, put in or added, or no body at all."""
    bytes_ = bytearray(body)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, max(0, len(bytes_) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                del bytes_[place:]
            case 1:
                bytes_[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case 2:
                bytes_[place:place] = draw(st.binary(max_size=12))
            case _:
                bytes_ += draw(st.binary(max_size=3))
    return bytes(bytes_) if draw(st.integers(0, 4)) else draw(st.binary(max_size=30))


def by_itself(schema: Any, body: bytes) -> dict[str, Any] | None:
    """What fastavro alone makes of a body, if that is all of it."""
    stream = io.BytesIO(body)
    try:
        found: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(stored(schema)), None)
    except Exception:
        return None
    return found if stream.tell() == len(body) else None


@given(st.lists(spoiled(), max_size=12))
def test_X6_spoiled_bytes_are_rejected_or_read_as_they_would_be_alone(bodies: list[bytes]) -> None:
    rows = read(THINGS, {7: readable(7, THING)}, [framed(7, body) for body in bodies])
    for body, row in zip(bodies, rows, strict=True):
        alone = by_itself(THING, body)
        if row["_error"] is None:
            assert alone is not None
            assert [row[name] for name in ("id", "n", "ok")] == [alone[name] for name in ("id", "n", "ok")]
            assert row["at"] == START + timedelta(milliseconds=alone["at"])
        elif alone is not None:
            assert "lies outside" in row["_error"] or "is not a timestamp" in row["_error"], row["_error"]


def test_X6_one_spoiled_record_among_many_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_values, "TOGETHER", 50)
    monkeypatch.setattr(column_values, "LARGEST", 40 * len(WHOLE))
    bodies = [WHOLE[:-1] if place in (13, 119) else WHOLE for place in range(200)]
    rows = read(THINGS, {7: readable(7, THING)}, [framed(7, body) for body in bodies])
    assert [place for place, row in enumerate(rows) if row["_error"]] == [13, 119]
    sizes = [len(some) for _, some in column_values.in_batches(pa.array([*bodies[:90], b"x" * 2000, b"y"]))]
    assert sizes == [40, 40, 10, 1, 1], "one that is too large is read by itself"
    assert rows[13]["_error"] == "schema 7: the bytes are no record of the schema: they end before it does"


def test_X6_what_is_not_framed_or_of_no_known_schema_is_rejected_with_the_reason() -> None:
    other = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "at", "type": "boolean"}, {"name": "n", "type": "string"}],
    }
    unlike = replace(readable(9, {}), unreadable="it is of kind JSON, and the log's messages are avro")
    values = [
        None, b"", b"\0\0\0\0", b"\1" + framed(7, WHOLE)[1:], b'{"at": 1}', framed(8, WHOLE), framed(9, b""),
        framed(7, WHOLE + b"x"), framed(2**32 - 1, b""), framed(10, b""), framed(11, b""), framed(12, b"\0"),
    ]  # fmt: skip
    empty = {"type": "array", "items": "null"}
    schemas = {7: readable(7, THING), 9: unlike, 10: readable(10, other), 11: readable(11, "no schema")}
    schemas[12] = readable(12, {"type": "record", "name": "T", "fields": [{"name": "none", "type": empty}]})
    found = [row["_error"] for row in read(THINGS, schemas, values)]
    framing = "the bytes do not begin with a zero and the id of a schema, as Confluent's serializers write them"
    assert found[:5] == ["there is no value", *[framing] * 4]
    assert found[5:9] == [
        "schema 8: the registry does not know it",
        "schema 9: it is of kind JSON, and the log's messages are avro",
        "schema 7: the bytes are no record of the schema: a record has 1 bytes less",
        "schema 4294967295: the registry does not know it",
    ]
    # All that the schema cannot give is told at once.
    assert found[9] == (
        "schema 10: field 'at' is boolean, column 'at' is declared as timestamp; "
        "field 'n' is string, column 'n' is declared as bigint"
    )
    assert found[10].startswith("schema 11: the schema cannot be parsed: ")
    assert found[11] == "schema 12: the schema has an array of items that have no bytes"


def test_a_schema_that_contains_itself_is_refused_as_its_bytes_could_go_on_for_ever() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "at", "type": "long"},
            {"name": "next", "type": ["null", "Node"]}]}  # fmt: skip
    (row,) = read(THINGS, {1: readable(1, node)}, [framed(1, b"\2" * 100_000)])
    assert row["_error"] == "schema 1: the schema's Node contains itself"


def test_values_that_a_column_does_not_hold_are_rejected_and_say_so() -> None:
    fields = {
        "at": logical("long", "timestamp-micros"), "id": "bytes", "n": "long", "ratio": "long",
        "price": logical("bytes", "decimal", precision=4, scale=2),
    }  # fmt: skip
    schema = {"type": "record", "name": "T", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    good = {"at": 0, "id": b"a", "n": 1, "ratio": 2, "price": b"\1"}
    wrong: list[dict[str, Any]] = [
        {}, {"id": b"\xff"}, {"ratio": 2**53 + 1}, {"price": signed(10_000)}, {"price": bytes(17)},
        {"ratio": -(2**62), "id": b"\xc3"}, {"at": 2**62}, {"at": -(2**60)},
    ]  # fmt: skip
    messages = [framed(1, avro_body(stored(schema), {**good, **one})) for one in wrong]
    found = [row["_error"] for row in read(THINGS, {1: readable(1, schema)}, messages)]
    assert found[:6] == [
        None,
        'schema 1: id = "/w==" is not a string',
        "schema 1: ratio = 9007199254740993 is not a double",
        "schema 1: price = 100.00 is not a decimal(10,2)",
        "schema 1: price = 0.00 is not a decimal(10,2)",
        'schema 1: id = "ww==" is not a string; ratio = -4611686018427387904 is not a double',
    ]
    outside = "lies outside [1900-01-01, 2200-01-01): set earliest and latest in the log"
    assert found[6] == f"the event time at = +148108-07-06 14:00:27.387904 {outside}"
    assert found[7] == f"the event time at = -34565-05-17 02:29:53.153024 {outside}"


@pytest.mark.parametrize(
    ("unit", "expected"), [("seconds", 5 * 10**6), ("milliseconds", 5000), ("microseconds", 5), ("nanoseconds", 0)]
)
def test_whole_numbers_are_instants_where_the_log_says_their_unit(unit: Any, expected: int) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "at", "type": ["null", "long"]}]}
    messages = [framed(1, avro_body(schema, {"at": number})) for number in (5, 2**63 - 1)]
    rows = read(replace(THINGS, instants=unit), {1: readable(1, schema)}, messages)
    assert rows[0]["at"] == START + timedelta(microseconds=expected)
    assert rows[1]["_error"] is not None
    (row,) = read(THINGS, {1: readable(1, schema)}, messages[:1])
    assert row["_error"] == "schema 1: field 'at' is long, column 'at' is declared as timestamp"


def test_a_column_that_is_not_declared_is_refused_where_the_log_says_so() -> None:
    strict = replace(THINGS, unknown="reject")
    (row,) = read(strict, {7: readable(7, THING)}, [framed(7, WHOLE)])
    declare = 'declare it in the log, or set unknown="ignore"'
    assert row["_error"] == f"schema 7: unknown column 'kind': {declare}; unknown column 'tags': {declare}"


def test_a_record_without_its_time_id_or_what_is_required_is_rejected() -> None:
    log = replace(THINGS, record_id="id", required="n", arrival_time="at")
    schema = {"type": "record", "name": "T", "fields": [
        {"name": "ts", "type": ["null", logical("long", "timestamp-millis")]},
        {"name": "id", "type": ["null", "string"]}, {"name": "n", "type": ["null", "long"]}]}  # fmt: skip
    told = [{"ts": None, "id": "a", "n": 1}, {"ts": 0, "id": None, "n": 1}, {"ts": 0, "id": "a", "n": None},
            {"ts": 1000, "id": "a", "n": 1}]  # fmt: skip
    rows = read(log, {1: readable(1, schema)}, [framed(1, avro_body(stored(schema), one)) for one in told])
    assert [row["_error"] for row in rows] == [
        "the event time at is missing", "the record id id is missing", "the required column n is missing", None,
    ]  # fmt: skip
    assert rows[3]["_arrival"] == rows[3]["at"] == START + timedelta(seconds=1)


def test_named_types_of_other_schemas_are_found_by_reference() -> None:
    kind = {"type": "enum", "name": "Kind", "namespace": "of.tests", "symbols": ["a", "b"]}
    other = {"type": "record", "name": "Money", "namespace": "of.tests", "fields": [{"name": "kind", "type": "Kind"}]}
    main = {"type": "record", "name": "T", "namespace": "of.tests", "fields": [
        {"name": "at", "type": logical("long", "timestamp-millis")}, {"name": "id", "type": "Kind"},
        {"name": "cost", "type": "Money"}]}  # fmt: skip
    references = (("of.tests.Kind", json.dumps(kind)), ("of.tests.Money", json.dumps(other)))
    schema = ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(main), references))
    log = replace(THINGS, aliases={})
    rows = read(log, {1: schema}, [framed(1, b"\0\2\0"), framed(1, b"\0\4\0")])
    assert rows[0]["id"] == "b"
    assert rows[1]["_error"] is not None


def test_a_text_in_a_column_of_json_is_json_itself_and_other_values_are_written_as_json() -> None:
    log = Log(name="l", columns={"at": "timestamp", "a": "json", "b": "json"}, event_time="at", messages="avro")
    schema = {"type": "record", "name": "T", "fields": [
        {"name": "at", "type": logical("long", "timestamp-micros")}, {"name": "a", "type": "string"},
        {"name": "b", "type": ["double", "string", {"type": "enum", "name": "E", "symbols": ["X"]}]}]}  # fmt: skip
    told = [('{"x": [1.10]}', 0.5), ("1e999", "é"), ("{", 1.0), ("[" * 501 + "]" * 501, 1.0), ("1", float("nan"))]
    messages = [framed(1, avro_body(stored(schema), {"at": 0, "a": a, "b": b})) for a, b in told]
    rows = read(log, {1: readable(1, schema)}, [*messages, framed(1, b"\0\2" + b"1\4\0")])
    assert [(row["a"], row["b"]) for row in rows if not row["_error"]] == [
        ('{"x": [1.10]}', "0.5"), ("1e999", '"é"'), ("1", '"X"'),
    ]  # fmt: skip
    assert [row["_error"] for row in rows if row["_error"]] == [
        'schema 1: a = "{" is not a json', f'schema 1: a = "{"[" * 99} is not a json',
        'schema 1: b = "nan" is not a json',
    ]  # fmt: skip


def doubled(type: str) -> Any:
    """A type with a value for each leaf of a tree of sixty levels."""
    record: Any = type
    for depth in range(60):
        fields = [{"name": "a", "type": record}, {"name": "b", "type": type if depth == 0 else f"T{depth - 1}"}]
        record = {"type": "record", "name": f"T{depth}", "fields": fields}
    at = {"name": "at", "type": logical("long", "timestamp-micros")}
    return {"type": "record", "name": "T", "fields": [at, {"name": "deep", "type": record}]}


def test_X7_a_short_schema_of_a_huge_number_of_fields_is_refused() -> None:
    logs = [
        Log(name="l", columns={"at": "timestamp"}, event_time="at", messages="avro", rest="extra"),
        Log(name="l", columns={"at": "timestamp", "deep": "json"}, event_time="at", messages="avro"),
    ]
    for log in logs:
        for type, reason in (("long", "more than 10,000 fields"), ("null", "more than 100 values but no bytes")):
            (row,) = read(log, {1: readable(1, doubled(type))}, [framed(1, b"\0")])
            assert row["_error"] is not None
            assert row["_error"].endswith(reason)
