"""What this process reads of JSON by itself is what Python's own parser makes of it, to the last digit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.ingest.plain_json import LINES, read_lines
from tailrace.model.base.time import instant
from tailrace.model.logs.log import Log
from tests.support.lakes.files import THINGS

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


def raw(texts: list[str]) -> pa.Table:
    rows = [{"_bytes": text.encode(), "_source": "s", "_offset": n, "_arrival": None} for n, text in enumerate(texts)]
    return pa.Table.from_pylist(rows, schema=LINES)


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
def test_X6_a_line_is_read_exactly_or_left(texts: list[str]) -> None:
    records, left = read_lines(THINGS, raw(texts))
    offsets = [*records["_offset"].to_pylist(), *left["_offset"].to_pylist()]
    assert sorted(offsets) == list(range(len(texts))), "each line is in one of the two, once"
    for row in records.to_pylist():
        assert {name: row[name] for name in THINGS.columns} == by_hand(texts[row["_offset"]])
        assert instant(THINGS.earliest) <= instant(row["at"]) < instant(THINGS.latest)
    assert all(one.as_py() == texts[n.as_py()].encode() for one, n in zip(left["_bytes"], left["_offset"], strict=True))


def test_a_line_that_is_written_as_declared_is_plain() -> None:
    whole = (
        '{"id": "a é", "at": "2026-01-01T12:00:00.5Z", "n": -12, "small": 7, "ratio": -0.25, "price": 1.50, '
        '"day": "2026-02-28", "ok": true}'
    )
    texts = [whole, '{"at":"2026-01-01 12:00:00"}', "", "[1]", '{"ok":null,"at":"2026-01-01T12:00:00+00:00"}', whole]
    records, left = read_lines(THINGS, raw(texts))
    assert left["_offset"].to_pylist() == [2, 3]
    assert sorted(records["_offset"].to_pylist()) == [0, 1, 4, 5]


def test_a_record_without_its_time_or_id_is_left() -> None:
    log = Log(name="things", columns={"id": "string", "at": "timestamp"}, event_time="at", record_id=("id",))
    texts = ['{"id": "a", "at": "2026-01-01T12:00:00Z"}', '{"id": null, "at": "2026-01-01T12:00:00Z"}', '{"id": "b"}']
    for one in (log, replace(log, record_id=(), required="id")):
        records, left = read_lines(one, raw(texts))
        assert records["id"].to_pylist() == ["a"]
        assert left["_offset"].to_pylist() == [1, 2]
