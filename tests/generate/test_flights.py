"""Real flights as a stream to land: in the order in which they became known, in files that keep that order."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tailrace.generate import flights
from tailrace.model.base.errors import TailraceError

FIRST, LAST = date(2013, 3, 7), date(2013, 3, 11)
SNOW = date(2013, 3, 8)


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return flights.load(FIRST, LAST)


@pytest.fixture
def cuts() -> list[datetime]:
    return flights.landing_cuts(FIRST, LAST, fine_day=SNOW)


@pytest.fixture(scope="module")
def year() -> pd.DataFrame:
    return flights.load(date(2013, 1, 1), date(2014, 1, 2))


def lines(paths: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_year_has_every_flight_once(year: pd.DataFrame) -> None:
    assert len(year) == 336_776
    assert year["flight_id"].is_unique
    assert (year["delay"].min(), year["delay"].max(), int(year["delay"].isna().sum())) == (-43, 1301, 8255)


def test_known_is_what_the_clock_showed_at_departure() -> None:
    raw = pd.read_csv(flights._archive(), usecols=["carrier", "flight", "origin", "year", "month", "day", "dep_time"])
    raw = raw[(raw["month"] == 3) & raw["day"].between(7, 9)].dropna()
    departed = raw["dep_time"].astype(int).mod(2400)
    keys = raw["carrier"] + raw["flight"].astype(str) + raw["origin"] + raw["day"].astype(str)
    shown = dict(zip(keys, departed, strict=True))
    loaded = flights.load(date(2013, 3, 7), date(2013, 3, 11)).dropna()
    local = loaded["known"].dt.tz_convert("America/New_York")
    day = loaded["scheduled"].dt.tz_convert("America/New_York").dt.day.astype(str)
    keys = loaded["carrier"] + loaded["flight"].astype(str) + loaded["origin"] + day
    clock = dict(zip(keys, local.dt.hour * 100 + local.dt.minute, strict=True))
    common = shown.keys() & clock.keys()
    assert len(common) > 2400
    assert {key: shown[key] for key in common} == {key: clock[key] for key in common}


def test_records_come_in_the_order_in_which_they_became_known(records: pd.DataFrame) -> None:
    assert records["known"].is_monotonic_increasing
    assert not records["scheduled"].is_monotonic_increasing
    assert tuple(records.columns) == flights.COLUMNS


def test_the_range_is_over_event_time_and_half_open(records: pd.DataFrame) -> None:
    assert records["scheduled"].min() >= pd.Timestamp(FIRST, tz="UTC")
    assert records["scheduled"].max() < pd.Timestamp(LAST, tz="UTC")
    halves = [flights.load(FIRST, SNOW), flights.load(SNOW, LAST)]
    assert sorted(pd.concat(halves)["flight_id"]) == sorted(records["flight_id"])


def test_a_cancelled_flight_becomes_known_at_its_scheduled_time(records: pd.DataFrame) -> None:
    cancelled = records[records["delay"].isna()]
    assert len(cancelled) > 100
    assert (cancelled["known"] == cancelled["scheduled"]).all()


def test_known_is_the_scheduled_time_and_the_delay(records: pd.DataFrame) -> None:
    flown = records.dropna()
    seconds = (flown["known"] - flown["scheduled"]).dt.total_seconds()
    assert (seconds == 60 * flown["delay"].astype(float)).all()
    assert (flown["delay"] < 0).any()
    assert (flown["delay"] > 240).any()


def test_a_line_is_a_record_of_json(records: pd.DataFrame, tmp_path: Path) -> None:
    first = flights.load(date(2013, 1, 1), date(2013, 1, 2))
    (path, *_) = flights.write_files(first, tmp_path, [])
    assert json.loads(path.read_text().splitlines()[0]) == {
        "flight_id": "UA1545-EWR-20130101T1015Z",
        "origin": "EWR",
        "dest": "IAH",
        "carrier": "UA",
        "flight": 1545,
        "scheduled": "2013-01-01T10:15:00Z",
        "known": "2013-01-01T10:17:00Z",
        "delay": 2,
    }
    assert any(record["delay"] is None for record in lines([path]))


def test_each_record_is_in_one_file_and_the_order_goes_on_across_them(
    records: pd.DataFrame, cuts: list[datetime], tmp_path: Path
) -> None:
    paths = flights.write_files(records, tmp_path, cuts)
    assert [record["flight_id"] for record in lines(paths)] == list(records["flight_id"])


def test_a_file_ends_at_its_cut(records: pd.DataFrame, cuts: list[datetime], tmp_path: Path) -> None:
    bounds = [datetime.min.replace(tzinfo=UTC), *cuts, datetime.max.replace(tzinfo=UTC)]
    for path in flights.write_files(records, tmp_path, cuts):
        known = [datetime.fromisoformat(record["known"]) for record in lines([path])]
        assert any(low <= min(known) and max(known) < high for low, high in pairwise(bounds)), path.name


def test_names_and_modification_times_keep_the_landing_order(
    records: pd.DataFrame, cuts: list[datetime], tmp_path: Path
) -> None:
    paths = flights.write_files(records, tmp_path, cuts)
    times = [path.stat().st_mtime for path in paths]
    assert paths == sorted(tmp_path.iterdir())
    assert all(before + 1 <= after for before, after in pairwise(times))


def test_names_and_modification_times_go_on_in_a_second_call(tmp_path: Path) -> None:
    once = flights.write_files(flights.load(FIRST, SNOW), tmp_path, [])
    again = flights.write_files(flights.load(SNOW, LAST), tmp_path, [])
    assert once[0].name < again[0].name
    assert once[0].stat().st_mtime < again[0].stat().st_mtime


@pytest.mark.slow
def test_a_year_lands_within_the_age_at_which_spark_forgets_files(year: pd.DataFrame, tmp_path: Path) -> None:
    ends = year.iloc[[0, len(year) - 1]]
    first, last = flights.write_files(ends, tmp_path, [datetime(2013, 6, 1, tzinfo=UTC)])
    assert last.stat().st_mtime - first.stat().st_mtime < timedelta(days=7).total_seconds()


def test_the_same_records_give_the_same_bytes(records: pd.DataFrame, cuts: list[datetime], tmp_path: Path) -> None:
    one = flights.write_files(records, tmp_path / "one", cuts)
    two = flights.write_files(records, tmp_path / "two", cuts)
    assert [(path.name, path.read_bytes()) for path in one] == [(path.name, path.read_bytes()) for path in two]


def test_nothing_is_left_half_written(records: pd.DataFrame, cuts: list[datetime], tmp_path: Path) -> None:
    flights.write_files(records, tmp_path, cuts)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_cuts_are_fine_on_the_fine_day_and_the_hours_after(cuts: list[datetime]) -> None:
    steps = dict(pairwise(cuts))
    fine = [cut for cut, following in steps.items() if following - cut == timedelta(minutes=15)]
    assert (fine[0], fine[-1]) == (datetime(2013, 3, 8, tzinfo=UTC), datetime(2013, 3, 9, 11, 30, tzinfo=UTC))
    assert cuts[0] == datetime(2013, 3, 8, tzinfo=UTC)
    assert cuts[-1] == datetime(2013, 3, 11, tzinfo=UTC)
    assert cuts == sorted(set(cuts))


def test_cuts_without_a_fine_day_are_even() -> None:
    cuts = flights.landing_cuts(FIRST, LAST, every=timedelta(hours=6))
    assert len(cuts) == 16
    assert {after - before for before, after in pairwise(cuts)} == {timedelta(hours=6)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flights.load(LAST, FIRST), "expected first < last"),
        (lambda: flights.load(date(2014, 2, 1), date(2014, 2, 2)), "expected days of 2013"),
        (lambda: flights.landing_cuts(LAST, FIRST), "expected first < last"),
        (lambda: flights.landing_cuts(FIRST, LAST, every=timedelta(0)), "steps of more than zero"),
        (lambda: flights.landing_cuts(FIRST, LAST, fine_day=LAST), "expected a day from"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(call: Any, message: str) -> None:
    with pytest.raises(flights.FlightsError, match=re.escape(message)) as caught:
        call()
    assert isinstance(caught.value, TailraceError)
    assert isinstance(caught.value, ValueError)


def test_cuts_that_make_no_sense_are_refused(records: pd.DataFrame, tmp_path: Path) -> None:
    noon = datetime(2013, 3, 8, 12, tzinfo=UTC)
    with pytest.raises(flights.FlightsError, match="each later than the one before"):
        flights.write_files(records, tmp_path, [noon, noon])
    with pytest.raises(flights.FlightsError, match="with a time zone"):
        flights.write_files(records, tmp_path, [noon.replace(tzinfo=None)])


def test_a_missing_data_set_names_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(flights, "distribution", nothing)
    with pytest.raises(flights.FlightsMissingError, match=re.escape("pip install 'tailrace[demo]'")):
        flights.load(FIRST, LAST)
