"""Rows compare with readable tables, and a difference shows what is missing, extra and different."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.windows.windows import Window
from tailrace.testing import Rows, TableError
from tailrace.testing.cells import CellReader, cell, key_of

TYPES = {
    "city": "string", "n": "bigint", "price": "decimal(8,2)", "mean": "double", "paid": "boolean", "day": "date",
    "at": "timestamp", "window": "window", "raw": "binary", "items": "array<struct<sku:string,price:double>>",
}  # fmt: skip
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
HOUR = 3_600_000_000


def rows(*given: dict[str, Any]) -> Rows:
    return Rows(TYPES, given, "what is given", tuple(TYPES), ("city",))


PARIS = {"city": "Paris", "n": 2, "price": Decimal("3.50"), "mean": 1 / 3, "paid": True, "at": NINE}
ROME = {"city": "New Rome", "n": None, "price": None, "mean": math.nan, "paid": False, "at": NINE}


@pytest.mark.parametrize(
    "table",
    [
        "city n \n Paris 2 \n 'x' 1",
        'city n \n Paris 2 \n "New Rome" 0',
        "city n \n Paris 2",
        'city n \n Paris 2 \n "New Rome" null \n Paris 2',
        "n mean \n 2 0.33333 \n null NaN",
        "n mean \n 2 ~0.34 \n null NaN",
        "n mean \n 2 ~0.3333 \n null 0.0",
        "paid at \n true 2026-03-01T09:01 \n false 2026-03-01T09:00",
        "city",
    ],
)
def test_rows_differ_from_a_table_with_another_cell_or_row(table: str) -> None:
    assert rows(PARIS, ROME) != table


@pytest.mark.parametrize(
    "table",
    [
        'city n \n Paris 2 \n "New Rome" null',
        "| city | n |\n|---|---:|\n| New Rome | null |\n|Paris|2|",
        "n price mean \n 2 3.5 ~0.3333 \n null null NaN",
        "n mean \n 2 0.3333333333333333 \n null NaN",
        "# of two cities\n\n  at   paid\n  2026-03-01T10:00+01:00  true\n  ------\n  09:00  false",
        "at | n \n 2026-03-01 09:00:00 | null \n 09:00 | 2",
    ],
)
def test_rows_equal_a_table_whatever_its_alignment_and_order(table: str) -> None:
    assert rows(PARIS, ROME) == table


def test_a_text_that_reads_like_null_or_has_bars_is_in_quotes() -> None:
    given = rows({"city": "null", "n": 1}, {"city": "a|b", "n": 2}, {"city": "", "n": 3}, {"city": None, "n": 4})
    assert given == 'n | city \n 1 | "null" \n 2 | "a|b" \n 3 | "" \n 4 | null'
    assert given != 'n | city \n 1 | null \n 2 | "a|b" \n 3 | "" \n 4 | null'


def test_the_order_counts_only_if_the_test_says_so() -> None:
    given = rows(PARIS, ROME)
    assert given == "n \n null \n 2"
    assert given.in_order == "n \n 2 \n null"
    assert given.in_order != "n \n null \n 2"
    assert list(given.in_order.compared("n \n null \n 2").lines())[-1] == "the rows are the same, in another order"


def test_rows_may_be_picked_by_their_values() -> None:
    given = rows(PARIS, ROME)
    assert given.where(city="Paris", at="2026-03-01T09:00") == "n \n 2"
    assert given.where(n=None).where(mean=math.nan) == 'city \n "New Rome"'
    with pytest.raises(TableError, match=r"town.*expected one of city"):
        given.where(town="Paris")


def test_all_faults_of_a_table_are_told_at_once() -> None:
    with pytest.raises(TableError) as told:
        assert rows(PARIS) == "city n paid \n Paris two true \n Rome \n Oslo 3 maybe"
    assert str(told.value).splitlines() == [
        "the table of the test cannot be read:",
        "  1. line 2, n = 'two': expected a value of type bigint; write such a value, or null",
        "  2. line 3 = 'Rome': expected 3 cells, one for each of city, n, paid; "
        'write null for a missing value, "" for an empty text, and texts with blanks in quotes',
        "  3. line 4, paid = 'maybe': expected a value of type boolean; write true, false or null",
    ]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("town \n Paris", "'town': expected one of city"),
        ("city city \n a b", "each column once"),
        ("", "a line with the names of columns"),
        ("at \n 09:00", "expected a value of type timestamp; write for example 2026-03-01T09:00"),
        ("price \n 3.555", "expected a value of type decimal"),
        ("n \n 3.5", "expected a value of type bigint"),
        ('city \n "Paris', "expected a value of type string"),
        ("items \n [{\"sku\":1}]", "expected a value of type array"),
        ("items \n [{\"skew\":\"a\"}]", "expected a value of type array"),
        ("window \n 2026-03-01T09:00", "expected a value of type window; write for example"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_an_error_and_no_difference(table: str, told: str) -> None:
    with pytest.raises(TableError, match=told):
        assert rows(PARIS) == table


def test_a_difference_shows_what_is_missing_extra_and_different() -> None:
    found = rows(PARIS, ROME, {"city": "Oslo", "n": 5}).compared('city n \n Paris 3 \n Bern 1 \n "New Rome" null')
    assert list(found.lines()) == [
        "1 equal, 1 differing, 1 missing, 1 extra",
        "- in the table   + given",
        "   city   n",
        "-  Paris  3",
        "+  Paris  2  differs in n",
        "-  Bern   1  missing",
        "+  Oslo   5  extra",
    ]


def test_the_printed_rows_are_a_table_that_they_equal() -> None:
    given = rows(PARIS | {"items": [{"sku": "a b", "price": 0.5}, None], "window": Window(0, HOUR)}, ROME)
    assert given == str(given)
    assert given == given.text("city", "items")
    assert given == rows(*given)
    assert given != rows(PARIS)


VALUES = {
    "string": st.text(max_size=4) | st.sampled_from(["null", "~1", "#", "--", '"', "a b", "|"]),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "decimal(8,2)": st.integers(-(10**8) + 1, 10**8 - 1).map(lambda cents: Decimal(cents).scaleb(-2)),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "binary": st.binary(max_size=4),
    "window": st.tuples(st.integers(0, 200), st.integers(1, 200)).map(
        lambda w: Window(w[0] * HOUR // 4, (w[0] + w[1]) * HOUR // 4)
    ),
}
NESTED = "array<struct<a:string,b:double,c:timestamp,d:decimal(8,2),e:array<boolean>>>"
VALUES[NESTED] = st.lists(
    st.fixed_dictionaries(
        {
            "a": VALUES["string"] | st.none(), "b": VALUES["double"], "c": VALUES["timestamp"] | st.none(),
            "d": VALUES["decimal(8,2)"], "e": st.lists(st.booleans()),
        }
    ),
    max_size=2,
)  # fmt: skip


@pytest.mark.parametrize("type", VALUES)
def test_a_cell_is_read_as_the_value_that_it_shows(type: str) -> None:
    @settings(max_examples=40)
    @given(VALUES[type] | st.none())
    def holds(value: Any) -> None:
        assert key_of(CellReader().read(cell(value, type), type)) == key_of(value)
        one = Rows({"x": type, "y": "bigint"}, ({"x": value, "y": 1},), "one", ("x", "y"))
        assert one == str(one)

    holds()


def test_the_beginning_and_the_end_of_time_have_names() -> None:
    assert cell(Window(BEGINNING, END_OF_TIME), "window") == "beginning/end"
    assert CellReader().read("beginning/end", "window") == Window(BEGINNING, END_OF_TIME)


def test_a_window_over_midnight_is_written_short() -> None:
    start = 23 * HOUR
    assert cell(Window(start, start + 2 * HOUR), "window") == "1970-01-01T23:00/01:00"
    assert CellReader().read("1970-01-01T23:00/01:00", "window") == Window(start, start + 2 * HOUR)
    assert CellReader("2026-03-01").read("00:30", "timestamp") == datetime(2026, 3, 1, 0, 30, tzinfo=UTC)
    assert cell(date(2026, 3, 1), "date") == "2026-03-01"
