"""Cut the records of a test into epochs with their clocks, as the stream of a definition would (rules T2 and T3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import Fault, TailraceError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, instant
from tailrace.model.base.values import in_utc
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import lag_bucket
from tailrace.model.step.chain_fold import Input
from tailrace.model.step.progress import ALL, Progress, Seen
from tailrace.testing.given_records import Record, RecordReader, RejectedError, shown

Instant: TypeAlias = "datetime | str"


class EpochsError(TailraceError, ValueError):
    """The error for epochs that the definition cannot read."""


@dataclass(frozen=True)
class Epoch:
    """An epoch of a test: the records that arrive together, and what else its stream knows.

    `records` is a list of records or, for a definition that reads several logs, a mapping from the name of a log to a
    list. `now` is the processing time; without it, the time is the latest of the records' times so far. The log is
    complete up to `complete`, as `tailrace watermark` says it. `signals` names the signals that arrive. Instants are a
    `datetime` or a text, which is in UTC if it has no offset.
    """

    records: Sequence[Record] | Mapping[str, Sequence[Record]] = ()
    now: Instant | None = None
    complete: Instant | None = None
    signals: tuple[str, ...] = ()


NOTHING = Epoch()
"""An epoch of which nothing is said."""

Given: TypeAlias = "Epoch | Record | Sequence[Record] | Mapping[str, Sequence[Record]]"
"""An epoch as a test writes it."""

Epochs: TypeAlias = "Iterable[Given]"
"""The epochs of a test: each is an `Epoch`, the list of its records, or a single record.

If the definition reads several logs, an epoch maps the name of a log to the log's records.
"""


@dataclass
class RejectedRecord:
    """A record that the reader of a log rejects."""

    record: Record
    reason: str
    epoch: int
    log: str


@dataclass
class Cut:
    """The epochs of a definition's logs, with their clocks, and the records that did not come into a log."""

    epochs: list[Mapping[str, Input]] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)
    duplicates: Counter[str] = field(default_factory=Counter)


class EpochCutter:
    """The object that makes epochs of records: it reads them, drops repeated ones, and advances the clock."""

    def __init__(self, logs: Iterable[Log]) -> None:
        self.logs = {log.name: log for log in logs}
        self.cut = Cut()
        self._readers = {name: RecordReader(log) for name, log in self.logs.items()}
        self.progress = {name: Progress() for name in self.logs}
        self._came: dict[tuple[Any, ...], int] = {}
        self._now: int | None = None

    def add(self, given: Given, *, allow_rejected: bool = True) -> None:
        """Add an epoch of records as their sources write them.

        Without `allow_rejected`, a `RejectedError` is raised if a record is rejected, and nothing is added.
        """
        records, epoch = self._records(given), given if isinstance(given, Epoch) else NOTHING
        number, before = len(self.cut.epochs), len(self.cut.rejected)
        read = {name: self._read(name, own, number) for name, own in records.items()}
        if not allow_rejected and (rejected := self.cut.rejected[before:]):
            del self.cut.rejected[before:]
            raise _error(rejected)
        self.add_read(read, epoch)

    def add_read(self, read: Mapping[str, Sequence[Record]], epoch: Epoch = NOTHING) -> None:
        """Add an epoch of records of the logs; `epoch` says the time and the signals."""
        number = len(self.cut.epochs)
        now = self._time(read) if epoch.now is None else micros_of("now", epoch.now)
        if epoch.now is not None and self._now is not None and now < self._now:
            raise EpochsError(f"epoch {number}: now = {epoch.now}: expected no time before the last epoch's")
        self._now = now = now if self._now is None else max(now, self._now)
        complete = BEGINNING if epoch.complete is None else micros_of("complete", epoch.complete)
        made = {}
        for name, log in self.logs.items():
            records = self._unique(log, read.get(name, []), now)
            progress = self.progress[name]
            progress = progress.after(log.strategy, _seen(log, records, now), now, complete=complete)
            self.progress[name] = progress
            made[name] = records, Clock(number, progress.watermark, now, epoch.signals)
        self.cut.epochs.append(made)

    def end(self) -> None:
        """Add a last epoch, without records, in which the watermark moves to the end of time."""
        clock = Clock(len(self.cut.epochs), END_OF_TIME, 0 if self._now is None else self._now)
        self.cut.epochs.append({name: ([], clock) for name in self.logs})

    def check(self) -> Cut:
        """Return the epochs. Raises `RejectedError` if a record was rejected."""
        if self.cut.rejected:
            raise _error(self.cut.rejected)
        return self.cut

    def _records(self, given: object) -> Mapping[str, Sequence[Record]]:
        """Return the records of an epoch for each log. Raises `EpochsError` if they are no records."""
        records: object = given.records if isinstance(given, Epoch) else given
        number, names = len(self.cut.epochs), ", ".join(self.logs)
        if isinstance(records, Mapping):
            if records and records.keys() <= self.logs.keys() and all(map(_is_list, records.values())):
                return records
            records = [records]
        if not _is_list(records):
            raise EpochsError(f"epoch {number}: expected a list of records, which are dicts; found {records!r:.200}")
        assert isinstance(records, Sequence)
        if len(self.logs) > 1 and records:
            raise EpochsError(f"epoch {number}: the definition reads {names}: write {{log name: [records]}} for them")
        return dict.fromkeys(self.logs, records)

    def _read(self, log: str, records: Sequence[Record], epoch: int) -> list[Record]:
        read = list[Record]()
        for record in records:
            made = self._readers[log].read(record)
            if isinstance(made, str):
                self.cut.rejected.append(RejectedRecord(record, made, epoch, log))
            else:
                read.append(made)
        return read

    def _time(self, read: Mapping[str, Sequence[Record]]) -> int:
        """Return the processing time at which records arrive: the latest of their times."""
        times = (
            instant(record[self.logs[name].arrival_time or self.logs[name].event_time])
            for name, records in read.items()
            for record in records
        )
        return max(times, default=0 if self._now is None else self._now)

    def _unique(self, log: Log, records: Sequence[Record], now: int) -> list[Record]:
        """Leave out the records whose ids are remembered (rule X5)."""
        if not log.id_columns:
            return list(records)
        unique = []
        for record in records:
            own = (log.name, *(record[name] for name in log.id_columns))
            if own in self._came and now - self._came[own] <= duration(log.remembered):
                self.cut.duplicates[log.name] += 1
            else:
                self._came[own] = now
                unique.append(record)
        return unique


def _error(rejected: Iterable[RejectedRecord]) -> RejectedError:
    return RejectedError([f"epoch {one.epoch}: {shown(one.record)}: {one.reason}" for one in rejected])


def _seen(log: Log, records: Sequence[Record], now: int) -> dict[str, Seen]:
    if not records or not log.strategy.follows_records:
        return {}
    times = [instant(record[log.event_time]) for record in records]
    arrived = [now if log.arrival_time is None else instant(record[log.arrival_time]) for record in records]
    lags = Counter(lag_bucket(came - at) for at, came in zip(times, arrived, strict=True))
    return {ALL: Seen(max(times), max(arrived), lags)}


def micros_of(name: str, given: Instant) -> int:
    """Return an instant that a test gives, in microseconds."""
    if isinstance(given, datetime):
        return instant(in_utc(given))
    try:
        return instant(in_utc(datetime.fromisoformat(given)))
    except (ValueError, TypeError):
        raise EpochsError(str(Fault(name, given, "an instant", 'write for example "2026-03-01T09:00"'))) from None


def _is_list(value: object) -> bool:
    """Return True if a value is a list of records."""
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(o, Mapping) for o in value)


def cut_epochs(definition: Definition, epochs: Epochs, *, ends: bool, allow_rejected: bool = False) -> Cut:
    """Make epochs of a test's records; with `ends`, a last epoch moves the watermark to the end of time."""
    cutter = EpochCutter(definition.sources)
    for one in epochs:
        cutter.add(one)
    if ends:
        cutter.end()
    return cutter.cut if allow_rejected else cutter.check()
