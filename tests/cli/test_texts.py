"""Instants and lengths of time as people write and read them."""

from __future__ import annotations

import json

import pytest

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import parse_instant, rate, span, time_text
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.time import BEGINNING, END_OF_TIME

HOUR = 3_600_000_000


@pytest.mark.parametrize(
    "text", ["2013-03-08T15:00Z", "2013-03-08T15:00", "2013-03-08 15:00", "2013-03-08T16:00+01:00", "20130308T15"]
)
def test_an_instant_is_utc_where_it_names_no_zone(text: str) -> None:
    assert time_text(parse_instant(text, "--from")) == "2013-03-08T15:00Z"


def test_a_date_is_its_midnight() -> None:
    assert time_text(parse_instant("2013-03-08", "--from")) == "2013-03-08T00:00Z"


@pytest.mark.parametrize("text", ["", "noon", "2013-13-01", "1362700800"])
def test_anything_else_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"--to '.*': expected a date or an instant, for example 2013-03-08"):
        parse_instant(text, "--to")


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (HOUR, "1970-01-01T01:00Z"),
        (HOUR + 1_000_000, "1970-01-01T01:00:01Z"),
        (HOUR + 1_000, "1970-01-01T01:00:00.001Z"),
        (HOUR - 1, "1970-01-01T00:59:59.999999Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (BEGINNING, "beginning"),
        (END_OF_TIME, "end of time"),
        (None, "–"),
    ],
)
def test_an_instant_is_shown_as_short_as_it_can_be(micros: int | None, text: str) -> None:
    assert time_text(micros) == text
    if micros is not None and BEGINNING < micros < END_OF_TIME:
        assert parse_instant(text, "--from") == micros


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.5, "0.5 s"),
        (9.999, "10 s"),
        (60, "1 min"),
        (3601, "1 h"),
        (90061, "1 d 1 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_a_length_of_time_has_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_rate_has_three_digits() -> None:
    assert [rate(count, 10) for count in (0, 7, 99, 123456)] == ["0", "0.7", "9.9", "12,300"]


def test_json_has_no_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is no JSON")

    values = {"rows": [{"ratio": float("nan"), "parts": (1.5, float("inf"))}, {"ratio": float("-inf")}], "n": 1}
    for line in (False, True):
        Output(json=True).data(values, line=line)
        read = json.loads(capsys.readouterr().out, parse_constant=refuse)
        assert read == {"rows": [{"ratio": "NaN", "parts": [1.5, "Infinity"]}, {"ratio": "-Infinity"}], "n": 1}
