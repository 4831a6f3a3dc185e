"""`records_of` generates records that their log takes, at their places, with nulls and ids as the log has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import Log, Map, minutes
from tailrace.testing import GeneratedColumnError, fold, records_of

NESTED = Log(
    name="nested",
    columns={
        "id": "bigint", "at": "timestamp", "seen": "timestamp", "day": "date", "clock": "time", "price": "decimal(6,2)",
        "x": "double", "small": "float", "ok": "boolean", "raw": "binary", "who": "string", "more": "json",
        "items": "array<struct<sku:string,price:decimal(4,1),at:timestamp>>", "tags": "map<string,array<int>>",
    },
    event_time="at",
    arrival_time="seen",
    disorder=minutes(5),
    record_id="id",
    required=("who",),
    fields={"at": "meta.createdAt", "id": "meta.id", "who": "user.`the name`", "items.price": "unit.price"},
    instants={"at": "milliseconds", "seen": "%d.%m.%Y %H:%M:%S.%f", "items.at": "seconds", "day": "days"},
    folders=("day", "ok"),
    rest="rest",
)  # fmt: skip
COPY = Map(name="copy", log=NESTED, what=tuple(NESTED.columns))
FIRST = datetime(2026, 3, 1, tzinfo=UTC)


@settings(max_examples=30)
@given(records_of(NESTED, span=minutes(10), repeats=True))
def test_the_log_takes_every_generated_record(records: list[dict[str, Any]]) -> None:
    given = fold(COPY, [records])
    assert len(given) + given.duplicates == len(records)
    assert len({row["id"] for row in given}) == len(given)
    for row in given:
        assert FIRST <= row["at"] < FIRST + minutes(10)
        assert row["at"] <= row["seen"] + minutes(0.001)
        assert row["seen"] <= row["at"] + minutes(5.001)
        assert row["who"] is not None


def test_columns_are_null_and_are_not_and_records_repeat_if_the_test_says_so() -> None:
    seen: dict[str, set[bool]] = {}
    written = set()
    repeated = {True: 0, False: 0}

    @settings(max_examples=50, derandomize=True, database=None)
    @given(records_of(NESTED), records_of(NESTED, min_size=1, max_size=3, repeats=True))
    def draws(once: list[dict[str, Any]], again: list[dict[str, Any]]) -> None:
        nonlocal written
        for repeats, records in ((False, once), (True, again)):
            found = fold(COPY, [records])
            repeated[repeats] += found.duplicates
            written |= {record.get("price", "left out") is None for record in records}
            for row in found:
                for name in NESTED.columns:
                    seen.setdefault(name, set()).add(row[name] is None)

    draws()
    assert repeated[True]
    assert True in written
    assert not repeated[False]
    assert {name for name, nulls in seen.items() if len(nulls) == 1} == {"id", "at", "seen", "who"}


@settings(max_examples=20)
@given(
    records_of(
        NESTED,
        values={
            "who": ["ann", "bob"],
            "items.price": st.just(Decimal("2.5")),
            "at": [datetime(2026, 5, 1, tzinfo=UTC)],
            "id": st.integers(0, 3),
        },
    )
)
def test_a_test_says_what_a_column_or_a_field_has(records: list[dict[str, Any]]) -> None:
    given = fold(COPY, [records])
    assert not given.duplicates
    for row in given:
        assert row["who"] in ("ann", "bob")
        assert row["at"] == datetime(2026, 5, 1, tzinfo=UTC)
        assert {item["price"] for item in row["items"] or () if item is not None} <= {Decimal("2.5")}
        assert 0 <= row["id"] <= 3


def test_values_of_other_columns_are_an_error() -> None:
    with pytest.raises(GeneratedColumnError, match=r"values of town: expected columns of id, at, .*items\.price"):
        records_of(NESTED, values={"town": ["Paris"]})


def test_event_times_keep_the_bounds_of_the_log() -> None:
    later = replace(NESTED, earliest=datetime(2027, 1, 1, tzinfo=UTC))

    @given(records_of(later, min_size=1, max_size=2))
    @settings(max_examples=10)
    def holds(records: list[dict[str, Any]]) -> None:
        fold(replace(COPY, log=later), [records])

    holds()
