"""What this process reads of JSON by itself is what Python's own parser makes of it, to the last digit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.json_reader import TOGETHER, read_lines
from tailrace.model.base.time import instant
from tailrace.model.logs.log import Log
from tests.support.lakes.files import THINGS, by_model, said
from tests.support.services.schema_registry import as_lines

Texts = Mapping[str, str]

TEXTS = {
    "id": st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    "at": st.sampled_from(
        ['"2026-01-01T12:00:00Z"', '"2026-02-30T12:00:00Z"', '"2026-01-01 23:59:59.25"', '"1850-01-01T00:00:00Z"',
         '"2026-01-01T12:00:00.123456+05:30"', '"2026-01-01T12:00:00.1234567Z"', '"2026-01-01"', '"24:00"', "5"]
    ),
    "n": st.integers(-(2**65), 2**65).map(str) | st.sampled_from(["1e3", "01", "-0", "1.0", '"1"']),
    "small": st.integers(-(2**33), 2**33).map(str),
    "ratio": st.floats(allow_nan=False).map(repr) | st.integers(-(10**20), 10**20).map(str),
    "price": st.decimals(-(10**9), 10**9, places=2).map(str) | st.sampled_from(['"2.50"', "0.125", '"x"', "-0.00"]),
    "day": st.dates().map(lambda day: f'"{day.isoformat()}"') | st.sampled_from(['"2023-02-29"', '"2026-1-1"']),
    "ok": st.sampled_from(["true", "false", "True", "1"]),
}  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from([*TEXTS]), unique=draw(st.integers(0, 9)) > 0, max_size=8))
    values = (f'"{name}"{draw(_SPACE)}:{draw(_SPACE)}{draw(TEXTS[name] | st.just("null"))}' for name in names)
    return draw(_SPACE) + "{" + f"{draw(_SPACE)},".join(values) + "}" + draw(st.sampled_from(["", "\r", " ", "}", ","]))


_SPACE = st.sampled_from(["", "", "", " ", "\t"])


def by_hand(text: str) -> dict[str, Any]:
    """What Python makes of a line."""
    values = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    at, day, price = (values.get(name) for name in ("at", "day", "price"))
    return {
        "id": values.get("id"),
        "at": at if at is None else datetime.fromisoformat(at).replace(tzinfo=datetime.fromisoformat(at).tzinfo or UTC),
        **{name: None if values.get(name) is None else int(values[name]) for name in ("n", "small")},
        "ratio": None if values.get("ratio") is None else float(values["ratio"]),
        "price": None if price is None else Decimal(price),
        "day": None if day is None else date.fromisoformat(day),
        "ok": values.get("ok"),
    }


@given(st.lists(lines(), max_size=12))
def test_X6_a_line_is_read_exactly_or_rejected_as_the_model_does(texts: list[str]) -> None:
    read = [text.encode() for text in texts]
    rows = read_lines(THINGS, as_lines(read))
    assert said(THINGS, rows) == by_model(THINGS, read)
    for row in rows.to_pylist():
        if row["_error"] is None:
            assert {name: row[name] for name in THINGS.columns} == by_hand(texts[row["_offset"]])
            assert instant(THINGS.earliest) <= instant(row["at"]) < instant(THINGS.latest)
        else:
            assert row["_raw"] == read[row["_offset"]]


def test_X6_what_is_read_of_a_line_does_not_depend_on_the_lines_beside_it() -> None:
    """One bad line among thousands costs itself, wherever it is."""
    good = b'{"at": "2026-01-01T12:00:00Z", "n": 1}'
    for bad, reason in (
        (b'{"at": 1}', "at = 1 is not a timestamp"),
        (b"{}}", "not one JSON object"),
        (b'{"n', "not one JSON object"),
    ):
        for place in (0, 1, TOGETHER - 1, TOGETHER, 2 * TOGETHER + 7):
            texts = [good] * (2 * TOGETHER + 8)
            texts[place] = bad
            rows = read_lines(THINGS, as_lines(texts))
            wrong = rows.filter(pc.is_valid(rows["_error"]))
            assert (wrong["_offset"].to_pylist(), wrong["_error"].to_pylist()) == ([place], [reason])
            assert pc.unique(rows.filter(pc.is_null(rows["_error"]))["n"]).to_pylist() == [1]


def test_X6_a_number_that_json_does_not_have_is_refused_also_in_a_field_that_is_ignored() -> None:
    log = replace(THINGS, unknown="ignore")
    at = '"at": "2026-01-01T12:00:00Z"'
    no = [f'{{{at}, "more": {one}}}'.encode() for one in ("NaN", "-Infinity", "[1, Infinity]", '{"a":NaN}', "\nInf")]
    good = [f'{{{at}, "more": {one}}}'.encode() for one in ('"NaN"', '"a, NaN"', '"Info"', "1e999", "[]")]
    for text in no:
        assert said(log, read_lines(log, as_lines([text]))) == ["not one JSON object"]
    rows = read_lines(log, as_lines([*good, *no, *good]))
    assert said(log, rows) == by_model(log, [*good, *no, *good])
    assert rows["_error"].null_count == 2 * len(good)


def test_X6_such_a_number_is_found_at_any_place_of_a_text_of_any_size() -> None:
    log = replace(THINGS, unknown="ignore")
    line = '{"at": "2026-01-01T12:00:00Z", "id": "%s", "more": %s}'
    for before in range(2**18 - 60, 2**18 - 30):
        texts = [(line % ("a" * size, one)).encode() for size, one in ((before, "NaN"), (10, "1"), (20, "Inf"))]
        errors = read_lines(log, as_lines(texts))["_error"].to_pylist()
        assert errors == ["not one JSON object", None, "not one JSON object"]


def test_the_depth_of_a_record_is_counted_at_any_place_of_a_text_of_any_size() -> None:
    log = replace(THINGS, unknown="ignore", depth=40)
    deep = "[" * 45 + "]" * 45
    for before in range(2**18 - 100, 2**18, 7):
        texts = [
            f'{{"at": "2026-01-01T12:00:00Z", "id": "{"a" * before}", "more": {one}}}'.encode() for one in (deep, "[]")
        ]
        assert said(log, read_lines(log, as_lines(texts))) == by_model(log, texts)


def test_white_space_around_a_record_does_not_matter() -> None:
    text = b'{"at": "2026-01-01T12:00:00Z", "id": "a"}'
    texts = [text + b"\r", b"  " + text + b" \t\r", b"\xef\xbb\xbf" + text, b"\t\t\t\t\t" + text]
    for log in (THINGS, Log(name="l", columns={"at": "timestamp"}, event_time="at", rest="extra")):
        rows = read_lines(log, as_lines(texts))
        assert said(log, rows) == by_model(log, texts)
        assert rows["_error"].null_count == len(texts)


def test_two_objects_on_a_line_beside_an_empty_line_are_not_taken_for_two_records() -> None:
    texts = [b'{"at": "2026-01-01T12:00:00Z"}{"at": "2026-01-01T12:00:00Z"}', b"", b'{"at": "2026-01-01T12:00:00Z"}']
    rows = read_lines(THINGS, as_lines(texts))
    assert rows.sort_by("_offset")["_error"].to_pylist() == ["not one JSON object", "not one JSON object", None]
    blank = BlankLines()
    assert read_lines(THINGS, as_lines(texts), blank).num_rows == 2
    assert blank.total == 1


def test_a_record_without_its_time_or_id_is_rejected() -> None:
    log = Log(name="things", columns={"id": "string", "at": "timestamp"}, event_time="at", record_id=("id",))
    texts = ['{"id": "a", "at": "2026-01-01T12:00:00Z"}', '{"id": null, "at": "2026-01-01T12:00:00Z"}', '{"id": "b"}']
    for one, missing in (
        (log, "the record id id is missing"),
        (replace(log, record_id=(), required="id"), "the required column id is missing"),
    ):
        rows = read_lines(one, as_lines([text.encode() for text in texts])).sort_by("_offset")
        assert rows["_error"].to_pylist() == [None, missing, "the event time at is missing"]
