"""Debezium's change records become rows that are added and taken back; what is left is the table as it is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.model.base.conditions import Match
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import hours
from tailrace.model.combiners.basic import Count, Max, Sum
from tailrace.model.combiners.first_last import Last
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive, Each
from tailrace.model.logs.changes import Changes
from tailrace.model.logs.derived_logs import Arrivals
from tailrace.model.logs.log import SIGN, Log
from tailrace.model.windows.windows import Fixed, Global
from tests.support.services.schema_registry import as_lines, avro_body, framed

COLUMNS = {"id": "bigint", "city": "string", "price": "decimal(10,2)", "day": "date", "paid": "timestamp",
           "ok": "boolean", "ratio": "double"}  # fmt: skip
TABLE = {**COLUMNS, "changed": "timestamp"}
JSON = Changes(name="orders", columns=TABLE, event_time="changed", aliases={"city": "town"})
NUMBERS = Changes(name="orders", columns=TABLE, event_time="changed", instants="milliseconds")
AVRO = Changes(name="orders", columns=TABLE, event_time="changed", messages="avro")
START = datetime(1970, 1, 1, tzinfo=UTC)

VALUE = {"type": "record", "name": "Value", "namespace": "shop.orders", "fields": [
    {"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]},
    {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
    {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
    {"name": "paid", "type": ["null", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}]},
    {"name": "ok", "type": ["null", "boolean"]}, {"name": "ratio", "type": ["null", "double"]},
    {"name": "more", "type": ["null", "string"]}]}  # fmt: skip
ENVELOPE = {"type": "record", "name": "Envelope", "namespace": "shop.orders", "fields": [
    {"name": "before", "type": ["null", VALUE]}, {"name": "after", "type": ["null", "Value"]},
    {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
        {"name": "ts_ms", "type": "long"}, {"name": "table", "type": "string"}]}},
    {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]}]}  # fmt: skip
SCHEMAS = {1: ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(ENVELOPE)))}

Row = dict[str, Any]


def written(row: Row | None, way: str) -> Any:
    """A row as Debezium writes it."""
    if row is None:
        return None
    if way == "avro":
        days = None if row["day"] is None else (row["day"] - date(1970, 1, 1)).days
        return {**row, "day": days, "paid": None if row["paid"] is None else row["paid"].isoformat(), "more": "x"}
    told = row | {"price": None if row["price"] is None else str(row["price"]), "more": [1, {"a": None}]}
    if way == "numbers":
        told["day"] = None if row["day"] is None else (row["day"] - date(1970, 1, 1)).days
        told["paid"] = None if row["paid"] is None else (row["paid"] - START) // timedelta(milliseconds=1)
        return told
    told |= {name: None if row[name] is None else row[name].isoformat() for name in ("day", "paid")}
    return {"town" if name == "city" else name: value for name, value in told.items()}


def message(way: str, op: str, before: Row | None, after: Row | None, at: int = 5) -> bytes:
    """A change record: flat, beside its schema, or in Avro."""
    change = {"op": op, "before": written(before, way), "after": written(after, way),
              "source": {"ts_ms": at, "table": "orders"}, "ts_ms": at + 1}  # fmt: skip
    if way == "avro":
        return framed(1, avro_body(ENVELOPE, change))
    if way == "numbers":
        return json.dumps(
            {"schema": {"type": "struct", "fields": [{"a": 1}, None]}, "payload": change}, indent=1
        ).encode()
    return json.dumps(change).encode()


LOGS = {"json": JSON, "numbers": NUMBERS, "avro": AVRO}


def read(way: str, values: Sequence[bytes | None]) -> list[Row]:
    return list(framed_records(LOGS[way], SCHEMAS, as_lines(values)).to_pylist())


PRICES = st.integers(-(10**10) + 1, 10**10 - 1).map(lambda cents: Decimal(cents) / 100)
MILLIS = st.integers(-(10**12), 4 * 10**12).map(lambda n: START + timedelta(milliseconds=n))
ROWS = st.fixed_dictionaries({
    "id": st.integers(-(2**63), 2**63 - 1), "city": st.none() | st.text(max_size=4), "price": st.none() | PRICES,
    "day": st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)), "paid": st.none() | MILLIS,
    "ok": st.none() | st.booleans(),
    "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False)})  # fmt: skip


@st.composite
def history(draw: st.DrawFn) -> tuple[list[tuple[str, Row | None, Row | None]], list[Row]]:
    """Changes of a table, and the rows that it has after them."""
    table, changes = list[Row](), list[tuple[str, Row | None, Row | None]]()
    for _ in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from("ccrud"))
        before = None if op in "cr" or not table else table.pop(draw(st.integers(0, len(table) - 1)))
        if before is None:
            op = op if op in "cr" else "c"
        after = None if op == "d" else draw(ROWS)
        changes.append((op, before, after))
        table += [] if after is None else [after]
    return changes, table


def counted(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in COLUMNS) for row in rows)


@given(st.sampled_from(list(LOGS)), history())
def test_X6_what_is_added_less_what_is_taken_back_is_the_table(way: str, made: tuple[Any, list[Row]]) -> None:
    changes, table = made
    rows = read(way, [message(way, op, before, after, n) for n, (op, before, after) in enumerate(changes)])
    assert [row["_error"] for row in rows] == [None] * len(rows)
    added, taken = ([row for row in rows if row[SIGN] == sign] for sign in (1, -1))
    assert len(added) + len(taken) == len(rows)
    assert counted(added) - counted(taken) == counted(table)
    assert not counted(taken) - counted(added)
    assert all(row["changed"] == START + timedelta(milliseconds=row["_offset"]) for row in rows)


DOUBLES = {
    "NaN": False, "-Infinity": False,
    "0.0": True, "1.0": True, "-1.0": True, "0e-400": True, "1e-300": True, "1e-400": False, "1e30": True, "null": True,
    f"0.{'0' * 400}1": False, f"1{'0' * 200}e-400": True, f"1{'0' * 200}e-600": False, "9007199254740992": True,
    "9007199254740993": False, "-9007199254740993": False,
}  # fmt: skip


@example("0.0", "1.0", '"none"')
@example("1e30", "9007199254740992", "12345678901234567")
@example("0.0", "1e-300", '"\\"ratio\\": 1e-400"')
@given(*[st.sampled_from(list(DOUBLES))] * 2, st.sampled_from(['"1e-400"', "12345678901234567", '{"ratio": 1e-400}']))
def test_X6_a_number_is_judged_alone_whatever_the_rest_of_its_message_has(before: str, after: str, rest: str) -> None:
    text = message("json", "u", {**ROW, "ratio": 1.5}, {**ROW, "ratio": 2.5}, 0).decode()
    for side, number in (("1.5", before), ("2.5", after)):
        text = text.replace(f'"ratio": {side}', f'"rest": {rest}, "ratio": {number}')
    fits = DOUBLES[before] and DOUBLES[after]
    rows = read("json", [text.encode()])
    sides = (("before", before), ("after", after))
    shown = "; ".join(f"{side}.ratio = {text[:100]} is not a double" for side, text in sides if not DOUBLES[text])
    numbers = not {before, after} & {"NaN", "-Infinity"}
    errors: list[str | None] = [None, None] if fits else [shown if numbers else "not one JSON object"]
    assert [row["_error"] for row in rows] == errors
    if fits:
        assert [row["ratio"] for row in rows] == [json.loads(before), json.loads(after)]


ROW: Row = {"id": 1, "city": "é\n", "price": Decimal("1.50"), "day": date(2026, 1, 2), "ok": True, "ratio": 0.5,
            "paid": datetime(2026, 1, 1, tzinfo=UTC)}  # fmt: skip


@pytest.mark.parametrize("way", list(LOGS))
def test_X6_a_change_that_does_not_say_all_is_rejected_with_the_remedy(way: str) -> None:
    good = message(way, "u", ROW, ROW | {"price": None})
    values = [
        message(way, "u", None, ROW), message(way, "d", None, None), message(way, "c", ROW, None),
        message(way, "t", None, None), message(way, "m", None, ROW), message(way, "c", None, ROW, at=10**15), good,
        message(way, "d", ROW, ROW), good[:-9],
    ]  # fmt: skip
    rows = read(way, values)
    said = {row["_offset"]: row["_error"] for row in rows if row["_error"]}
    assert all(row["_raw"] == (values[row["_offset"]] if row["_error"] else None) for row in rows)
    full = "does not say what the row was before: set REPLICA IDENTITY FULL for the table"
    assert full in said[0]
    assert full in said[1]
    assert said[2].endswith("the change 'c' has no row after it")
    assert "the change 't' takes back all rows and names none" in said[3]
    assert said[4].endswith("the change 'm' is none of c, r, u and d")
    assert "after: the event time changed" in said[5]
    assert sorted(said) == [0, 1, 2, 3, 4, 5, 8]
    # A deleted row is taken back, whatever stands beside it.
    assert [(row["_offset"], row[SIGN]) for row in rows if not row["_error"]] == [(6, -1), (7, -1), (6, 1)]


def test_X6_an_update_of_which_one_row_does_not_fit_is_rejected_as_a_whole() -> None:
    whole = written(ROW, "json")
    odd: list[Mapping[str, Any]] = [
        {"id": "1"}, {"price": "1.005"}, {"day": "2026-1-1"}, {"paid": 5}, {"ok": 1}, {"town": 5}, {"id": 1.5},
    ]  # fmt: skip
    values = [
        json.dumps({"op": "u", "before": whole, "after": whole | dict(one), "source": {"ts_ms": 1}}).encode()
        for one in odd
    ]
    one = message("json", "c", None, ROW)
    values += [
        one.replace(b"\\n", b"\n"),
        one.replace(b"\\n", b"\t"),
        one + one,
        b"",
        b"{}",
        b"[]",
        b"\xff",
        one[:-1] + b'}, "number": 3} {"message": ' + one,
        one + b"}",
        one,
    ]
    rows = read("json", values)
    assert [row["_offset"] for row in rows if not row["_error"]] == [len(values) - 1]
    assert sorted(row["_offset"] for row in rows) == list(range(len(values)))
    assert all(row["_raw"] == values[row["_offset"]] for row in rows if row["_error"])


@given(st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=4), st.booleans()), max_size=8))
def test_X6_spoiled_bytes_are_rejected_or_read_and_stop_nothing(spoils: list[tuple[int, bytes, bool]]) -> None:
    for way in LOGS:
        whole = message(way, "u", ROW, ROW)
        values = [whole[:place] + put + (whole[place:] if on else b"") for place, put, on in spoils]
        rows = read(way, values)
        rejected = [row for row in rows if row["_error"]]
        assert all(row["_raw"] == values[row["_offset"]] for row in rejected)
        assert {row["_offset"] for row in rows} == set(range(len(values)))
        assert not {row["_offset"] for row in rejected} & {row["_offset"] for row in rows if not row["_error"]}


def test_a_schema_that_is_no_change_records_or_not_of_the_table_is_refused_with_every_fault() -> None:
    other = {
        "type": "record",
        "name": "V",
        "fields": [{"name": "id", "type": "string"}, {"name": "ok", "type": "long"}],
    }
    told = json.loads(json.dumps(ENVELOPE))
    told["fields"][0]["type"], told["fields"][1]["type"] = ["null", other], ["null", "V"]
    schemas = {
        1: ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(VALUE))),
        2: ReadableSchema(RegisteredSchema(2, "AVRO", json.dumps(told))),
    }
    rows = framed_records(AVRO, schemas, as_lines([framed(1, b""), framed(2, b"")])).to_pylist()
    assert [row["_error"] for row in rows] == [
        "schema 1: the schema is no change record's: it has no field 'op'",
        "schema 2: field 'id' is string, column 'id' is declared as bigint; "
        "field 'ok' is long, column 'ok' is declared as boolean",
    ]


def test_readers_that_would_miss_what_is_taken_back_are_refused() -> None:
    totals: dict[str, Any] = {"name": "totals", "log": JSON, "key": "city", "what": {"n": Count(), "sum": Sum("price")}}
    with pytest.raises(DefinitionError, match=r"expected one window for all.*use Global\(\)"):
        Pipeline(**totals, where=Fixed(hours(1)))
    with pytest.raises(DefinitionError, match="write a Pipeline over orders"):
        Map(name="some", log=JSON)
    with pytest.raises(DefinitionError, match="nothing is taken back"):
        Arrivals(of=JSON)
    with pytest.raises(DefinitionError, match="write a Pipeline over orders"):
        Join(name="pairs", left=JSON, right=JSON, on="id", within=hours(1))
    plain = Log(name="orders", columns=TABLE, event_time="changed")
    assert (
        Pipeline(**totals, where=Global()).fingerprint
        != Pipeline(**{**totals, "log": plain}, where=Global()).fingerprint
    )
    by_time: dict[str, Any] = {
        "key": ("changed", "city"), "what": {"n": Count(), "last": Last("price"), "latest": Max("changed")},
    }  # fmt: skip
    with pytest.raises(DefinitionError) as refused:
        Pipeline(**{**totals, **by_time}, where=Global())
    assert {fault.path for fault in refused.value.faults} >= {"key", "what['last']", "what['latest']"}
    for step in (
        Derive({"since": Col("changed")}),
        Derive({"changed": Col("paid")}),
        Each(lambda record: [record], {"id": "bigint"}),
    ):
        with pytest.raises(DefinitionError, match=r"each\[0\]"):
            Pipeline(**totals, each=step, where=Global())
    Pipeline(**totals, each=Derive({"whole": Col("id") // 10}), where=Global(), keep=Match("ok", "==", True))
    with pytest.raises(DefinitionError) as refused:
        Changes(name="o", columns=TABLE, event_time="changed", record_id="id", unknown="reject", arrival_time="paid")
    assert [fault.path for fault in refused.value.faults] == ["log.unknown", "log.record_id", "log.arrival_time"]


NESTED: dict[str, str] = {
    "id": "bigint", "tags": "array<string>", "spot": "struct<x:double,at:timestamp>", "attrs": "map<string,int>",
    "opens": "time", "paid": "timestamp", "note": "json", "town": "string",
}  # fmt: skip
SPOT = {"type": "record", "name": "Spot", "fields": [
    {"name": "X", "type": "double"}, {"name": "at", "type": ["null", "string"]}]}  # fmt: skip
NESTED_VALUE = {"type": "record", "name": "Value", "fields": [
    {"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "spot", "type": ["null", SPOT]}, {"name": "attrs", "type": {"type": "map", "values": "int"}},
    {"name": "opens", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTime"}},
    {"name": "paid", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
    {"name": "note", "type": {"type": "map", "values": "long"}},
    {"name": "place", "type": {"type": "record", "name": "Town", "fields": [{"name": "town", "type": "string"}]}},
    {"name": "more", "type": "long"}]}  # fmt: skip


def test_X6_nested_rows_are_read_in_json_as_in_avro_and_what_does_not_fit_says_where() -> None:
    envelope = json.loads(json.dumps(ENVELOPE))
    envelope["fields"][0]["type"], envelope["fields"][1]["type"] = ["null", NESTED_VALUE], ["null", "Value"]
    schemas = {1: ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(envelope)))}
    row = {"id": 1, "tags": ["a", None], "spot": {"X": 0.5, "at": "2026-01-01T12:00:00"}, "attrs": {"b": 2, "a": 1},
           "opens": 30_600_000_000, "paid": 5_000_000, "note": {"x": 1}, "place": {"town": "Ulm"},
           "more": 7}  # fmt: skip
    far = {**row, "spot": {"X": 1.5, "at": "no time"}}
    many = {**row, "tags": ["a"] * 4}
    changes = [{"op": op, "before": before, "after": after, "source": {"ts_ms": 5, "table": "t"}, "ts_ms": 6}
               for op, before, after in (("u", row, row), ("u", row, far), ("d", many, None))]  # fmt: skip
    bodies = {
        "json": [json.dumps(one, separators=(",", ":")).encode() for one in changes],
        "avro": [framed(1, avro_body(envelope, one)) for one in changes],
    }
    found = dict[str, Any]()
    for way, values in bodies.items():
        log = Changes(
            name="orders", columns={**NESTED, "changed": "timestamp"}, event_time="changed", messages=way,  # type: ignore[arg-type]
            fields={"spot.x": "X", "town": "place.town"}, zone="Europe/Berlin", rest="extra", elements=3,
            instants={"opens": "microseconds", "paid": "microseconds"},
        )  # fmt: skip
        rows = framed_records(log, schemas, as_lines(values)).to_pylist()
        assert all(one["_raw"] == values[one["_offset"]] for one in rows if one["_error"])
        for one in rows:
            one["_raw"], one["_error"] = None, (one["_error"] or "").removeprefix("schema 1: ")
        found[way] = rows
    assert found["avro"] == found["json"]
    assert [one["_error"] for one in found["json"]] == [
        "", "", 'after.spot.at = "no time" is not a timestamp',
        "before.tags is a list of more than 3 elements: set elements in the log",
    ]  # fmt: skip
    assert {name: found["json"][1][name] for name in (*NESTED, "extra", SIGN)} == {
        "id": 1, "tags": ["a", None], "spot": {"x": 0.5, "at": datetime(2026, 1, 1, 11, tzinfo=UTC)},
        "attrs": [{"key": "a", "value": 1}, {"key": "b", "value": 2}], "opens": "08:30:00.000000",
        "paid": START + timedelta(seconds=5), "note": '{"x":1}', "town": "Ulm", "extra": '{"more":7}', SIGN: 1,
    }  # fmt: skip
