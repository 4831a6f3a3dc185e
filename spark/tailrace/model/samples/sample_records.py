"""Functions that read sample records and cut them into epochs, so that users can try out a definition in plain Python.

A sample is read like the source of a stream: a value is accepted only if it has the declared type. A row with a value
of another type is rejected, and the reason for the rejection is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, instant
from tailrace.model.logs.csv_records import csv_records, is_blank
from tailrace.model.logs.json_records import JsonRecords, Values, as_record
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import lag_bucket
from tailrace.model.step.progress import ALL, Progress, Seen
from tailrace.model.step.step import Record

Came = tuple[str, Record]
"""A record together with the name of its log, in this order: the name, and then the record."""

Epochs = list[tuple[Sequence[Record], Clock]]
"""Epochs in the form that `reference.fold` takes: the records and the clock of each epoch."""


class RejectedRow(NamedTuple):
    """A row of a sample that is not a valid record: the row's line number, and the reason for its rejection."""

    line: int
    reason: str


@dataclass(frozen=True)
class Sample:
    """The records of a sample, and the rows of the sample that were rejected.

    `duplicates` is the number of records that repeat an earlier record (rule X5).
    """

    records: Sequence[Record]
    rejected: Sequence[RejectedRow]
    duplicates: int = 0

    @classmethod
    def together(cls, parts: Iterable[Sample]) -> Sample:
        """Combine several samples into one sample, in the order in which the samples are passed."""
        given = list(parts)
        records = [record for part in given for record in part.records]
        return cls(records, [bad for part in given for bad in part.rejected])

    @property
    def came(self) -> int:
        """The number of records in the sample, not counting duplicates."""
        return len(self.records) - self.duplicates


def from_json(log: Log, lines: Iterable[str | bytes], source: str = "") -> Sample:
    """Read records from lines that contain one JSON object each; blank lines are skipped.

    `source` is the name of the file in the form of a URI, whose folders may have values (`Log.folders`).

    >>> rides = Log(name="rides", columns={"at": "timestamp", "price": "decimal(6,2)"}, event_time="at")
    >>> from_json(rides, ['{"at": "2024-01-01T00:00:00Z", "price": 2.50}', '{"at": 7}']).rejected
    [RejectedRow(line=2, reason='at = 7 is not a timestamp')]
    """
    reader = JsonRecords(log)
    given = (line.encode(errors="surrogatepass") if isinstance(line, str) else line for line in lines)
    whole = ((number, line) for number, line in enumerate(given, 1) if not is_blank(line.removesuffix(b"\n")))
    return from_values(log, ((number, reader.read(line, source=source)) for number, line in whole))


def from_csv(log: Log, lines: Iterable[bytes], source: str = "") -> Sample:
    """Read records from lines of CSV, as the log's options of CSV describe them; `source` is as for `from_json`."""
    return from_values(log, csv_records(log, lines, source))


def epochs(
    log: Log, records: Sequence[Record], *, per_epoch: int = 1, every: timedelta | None = None, ends: bool = True
) -> Epochs:
    """Cut the records into epochs as a stream would receive them, and return the epochs with their clocks.

    If the log has a column for the arrival time, the records arrive in the order of this column. If the log has no such
    column, the records arrive in the order in which they are passed to the function. A record is dropped if its id is
    still remembered from an earlier record (rule X5). An epoch contains `per_epoch` records. If `every` is passed, an
    epoch instead contains all records that arrive within a period of this length. The watermarks are computed with the
    log's watermark strategy. If `ends` is True, a last epoch moves the watermark to the end of time.

    Law: if `ends` is True, no window is left open, however the records are cut into epochs.
    """
    cut = epochs_of_logs([(log, records)], per_epoch=per_epoch, every=every, ends=ends)
    return [epoch[log.name] for epoch in cut]


def epochs_of_logs(
    samples: Sequence[tuple[Log, Sequence[Record]]],
    *,
    per_epoch: int = 1,
    every: timedelta | None = None,
    ends: bool = True,
) -> list[Mapping[str, tuple[Sequence[Record], Clock]]]:
    """Cut the records of several logs into epochs, as `epochs` does for one log; every epoch covers all of the logs.

    `samples` has pairs of a log and the records of this log. An epoch maps the name of each log to the records and the
    clock of this log.
    """
    came = [(now, (log.name, one)) for log, records in samples for now, one in _unique(log, _arrivals(log, records))]
    arrivals = sorted(came, key=lambda one: one[0])
    cut = _by_period(arrivals, duration(every)) if every else _by_count(arrivals, per_epoch)
    progress, now = {log.name: Progress() for log, _ in samples}, 0
    made: list[Mapping[str, tuple[Sequence[Record], Clock]]] = []
    for number, (bundle, now) in enumerate(cut):
        epoch = {}
        for log, _ in samples:
            own = [record for name, record in bundle if name == log.name]
            times = [instant(record[log.event_time]) for record in own]
            lags = Counter(lag_bucket(now - at) for at in times)
            seen = {ALL: Seen(max(times), now, lags)} if own else {}
            progress[log.name] = progress[log.name].after(log.strategy, seen, now)
            epoch[log.name] = own, Clock(number, progress[log.name].watermark, now)
        made.append(epoch)
    if ends:
        made.append({log.name: ([], Clock(len(made), END_OF_TIME, now)) for log, _ in samples})
    return made


def _arrivals(log: Log, records: Sequence[Record]) -> Iterator[tuple[int, Record]]:
    """Yield each record with its arrival time in microseconds; the arrival times never decrease."""
    column = log.arrival_time
    if column is None:
        now = BEGINNING
        for record in records:
            now = max(now, instant(record[log.event_time]))
            yield now, record
    else:
        yield from sorted(((instant(record[column]), record) for record in records), key=lambda one: one[0])


def _unique(log: Log, arrivals: Iterable[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
    """Yield the arriving records, without duplicates.

    A record is a duplicate if its id has already arrived within the time for which the log remembers ids.
    """
    columns, horizon = log.id_columns, duration(log.remembered)
    came: dict[tuple[Any, ...], int] = {}
    for now, record in arrivals:
        own = tuple(record[name] for name in columns)
        if not columns or own not in came or now - came[own] > horizon:
            came[own] = now
            yield now, record


def _by_count(arrivals: Sequence[tuple[int, Came]], count: int) -> Iterator[tuple[list[Came], int]]:
    for place in range(0, len(arrivals), count):
        part = arrivals[place : place + count]
        yield [record for _, record in part], part[-1][0]


def _by_period(arrivals: Sequence[tuple[int, Came]], period: int) -> Iterator[tuple[list[Came], int]]:
    periods: dict[int, list[Came]] = {}
    for at, record in arrivals:
        periods.setdefault(-(-at // period), []).append(record)
    for number, bundle in periods.items():
        yield bundle, number * period


def from_values(log: Log, rows: Iterable[tuple[int, Values | str]]) -> Sample:
    """Build a sample from values that the model's readers have read."""
    records, rejected = list[Record](), list[RejectedRow]()
    for line, read in rows:
        if isinstance(read, str):
            rejected.append(RejectedRow(line, read))
        else:
            records.append(as_record(log, read))
    return Sample(records, rejected)
