"""Logs that are derived from other logs or definitions: panes, productions, unions, and logs by arrival time.

An epoch of a union contains the records of all logs of the union. The watermark of a union is the lowest watermark of
its logs (rule T3; Dataflow Model, 2.1). So a definition over a union is folded, replayed and recomputed like a
definition over a single log, and no record is stored twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from tailrace.model.base.errors import Fault, raise_faults
from tailrace.model.base.names import name_faults
from tailrace.model.base.time import moment
from tailrace.model.logs.log import PANE_TIME, PLACE, SIGN, Log
from tailrace.model.logs.widest import widest


class Producer(Protocol):
    """A definition whose output is a log that other definitions read."""

    @property
    def name(self) -> str: ...

    @property
    def sources(self) -> tuple[Log, ...]:
        """The logs that are filled by a source and that the definition reads, directly or through other definitions."""

    @property
    def former_fingerprint(self) -> str:
        """The fingerprint of the definition in lakes of earlier versions."""

    def fingerprint_of(self, columns: Collection[str]) -> str:
        """Return the fingerprint of the definition for a reader of its output that uses only these columns."""


P = TypeVar("P", bound=Producer)


@dataclass(frozen=True, kw_only=True)
class _Output(Log, Generic[P]):
    """A definition's output, as the log that other definitions read.

    The rows of this log come from the ledger table of the definition, not from a source.
    """

    landed = False

    of: P = field(kw_only=True)

    @property
    def trails(self) -> int:
        return int(getattr(self.of, "trails", 0)) if self.takes_back else 0

    @property
    def sources(self) -> tuple[Log, ...]:
        return self.of.sources

    def _faults(self) -> Iterable[Fault]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Panes(_Output[P]):
    """The panes of a pipeline stage, as the log that a later stage reads; `Pipeline.panes` creates this log.

    The log's columns are the key, the results, `window_start` and `window_end`, and `event_time`. The log declares
    neither bounds for event times nor a disorder, because its watermark is passed on by the earlier stage (rule T3).
    """

    takes_back = True


@dataclass(frozen=True, kw_only=True)
class Productions(_Output[P]):
    """The output of a computation, a map or a join, as a log that other definitions read.

    The property `produced` of the definition creates this log. The columns are `event_time` and, for a computation, the
    key columns and the columns of `produces`. For a map or a join, the columns are `event_time` and the output columns.
    The records are never retracted, unless they come from a join that retracts rows (`Join.takes_back`). The watermark
    is passed on by the definition that produces the records (rule T3). A record that a computation has produced is
    never late for the readers of the computation.
    """

    @property
    def takes_back(self) -> bool:
        return bool(getattr(self.of, "takes_back", False))

    @property
    def kept(self) -> bool:
        return getattr(self.of, "productions", "strong") == "strong"


@dataclass(frozen=True, kw_only=True)
class Union(Log):
    """Several logs as one log. The members are logs that a source fills, or the output of computations, maps and joins.

    `of` is a tuple of logs, or a mapping from names to logs. A record has values in the columns of its own log, and
    null in the columns of the other logs. The column that `tag` names contains the name of the record's log, and the
    column `event_time` contains the record's event time. A column that several logs share must have the same type in
    all of these logs. If all partitions of a log are idle, the watermark of the union does not wait for that log.

    >>> views = Log(name="views", columns={"at": "timestamp", "ad": "bigint"}, event_time="at")
    >>> clicks = Log(name="clicks", columns={"at": "timestamp", "ad": "bigint", "by": "string"}, event_time="at")
    >>> both = Union(name="ads", of=(views, clicks))
    >>> dict(both.columns)
    {'log': 'string', 'at': 'timestamp', 'ad': 'bigint', 'by': 'string', 'event_time': 'timestamp'}
    """

    landed = False

    of: Mapping[str, Log] | tuple[Log, ...]
    tag: str = "log"
    columns: Mapping[str, str] = field(default_factory=dict)
    event_time: str = PANE_TIME

    def __post_init__(self) -> None:
        raise_faults(self.name, self._given_faults())
        of: Mapping[str, Log] | tuple[Log, ...] = self.of
        named = dict(of) if isinstance(of, Mapping) else {log.name: log for log in of}
        object.__setattr__(self, "of", MappingProxyType(named))
        raise_faults(self.name, self._faults())
        columns = {self.tag: "string"}
        for member, log in self.members.items():
            columns |= {name: log.columns[column] for name, column in self.columns_of(member).items()}
        object.__setattr__(self, "columns", MappingProxyType(columns | {PANE_TIME: "timestamp"}))
        object.__setattr__(self, "percentiles", MappingProxyType({}))
        for name, found in (("earliest", min), ("latest", max)):
            object.__setattr__(self, name, found(getattr(log, name) for log in self.sources))

    @property
    def members(self) -> Mapping[str, Log]:
        """A mapping from names to the logs of the union; the column that `tag` names contains the name of a record's
        log.
        """
        assert isinstance(self.of, Mapping)
        return self.of

    @property
    def parts(self) -> tuple[Log, ...]:
        return tuple(self.members.values())

    @property
    def sources(self) -> tuple[Log, ...]:
        found: dict[str, list[tuple[str, Log]]] = {}
        for part in self.parts:
            for log in part.sources:
                found.setdefault(log.name, []).append((part.name, log))
        return tuple(map(widest, found.values()))

    def columns_of(self, member: str) -> Mapping[str, str]:
        """Return a mapping for one log of the union: from column names of the union to column names of this log."""
        return {name: name for name in self.members[member].columns}

    def used_of(self, member: str, used: Collection[str]) -> set[str]:
        """Return the columns of one log that a definition uses if it uses these columns of the union."""
        return {column for name, column in self.columns_of(member).items() if name in used}

    def records(self, member: str, records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Convert records of one log to records of the union."""
        log, empty = self.members[member], dict.fromkeys(self.columns)
        for record in records:
            own = {name: record.get(column) for name, column in self.columns_of(member).items()}
            place = {name: record[name] for name in (*PLACE, SIGN) if name in record}
            yield {**empty, **own, self.tag: member, PANE_TIME: record[log.event_time], **place}

    def _given_faults(self) -> Iterable[Fault]:
        """Find the faults in the union's own options: its name, its logs and the names of these logs, and `tag`.

        If there are such faults, all further checks are skipped.
        """
        yield from name_faults("log.name", self.name)
        logs: object = tuple(self.of.values()) if isinstance(self.of, Mapping) else self.of
        if not isinstance(logs, tuple) or len(logs) < 2 or not all(isinstance(log, Log) for log in logs):
            yield Fault("log.of", self.of, "two logs or more", "write of=(views, clicks)")
            return
        if isinstance(self.of, Mapping):
            for name in self.of:
                yield from name_faults(f"log.of[{name!r}]", name)
        names = [log.name for log in logs]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield Fault("log.of", name, "logs, each once", "leave one out, or give the other a name of its own")
        yield from name_faults("log.tag", self.tag)

    def _faults(self) -> Iterable[Fault]:
        declared: dict[str, tuple[str, str]] = {}
        for member, log in self.members.items():
            path = f"log.of[{member!r}]"
            if log.takes_back:
                yield taken_back(path, log, f"read what {log.name} reads")
            elif isinstance(log, Arrivals):
                yield log.refused(path)
            elif isinstance(log, Union):
                expected = "a log that is no union"
                yield Fault(path, f"the union {log.name}", expected, "write all of its logs into this one")
            elif not log.kept:
                remedy = f'leave productions="weak" out of {log.name}'
                yield Fault(path, f"what {log.name} produces", "productions that are kept", remedy)
            if self.tag in log.columns:
                expected = "a column that no log has"
                yield Fault("log.tag", self.tag, expected, f'{log.name} has it: write for example tag="of_log"')
            if PANE_TIME in log.columns and log.event_time != PANE_TIME:
                expected = f"no column {PANE_TIME} that is another time than the record's own"
                yield Fault(f"{path}.columns", PANE_TIME, expected, "give it another name, for example with a Map")
            for name, type in log.columns.items():
                other, known = declared.setdefault(name, (log.name, type))
                if known != type:
                    found, expected = f"{name}: {type}", f"{known}, as {other} has it"
                    yield Fault(f"{path}.columns", found, expected, "give it another name, for example with a Map")


def taken_back(path: str, log: Log, remedy: str) -> Fault:
    """Return the fault that is reported if a definition cannot process retractions but its log contains retracted
    records.
    """
    found = f"the panes of {log.name}" if isinstance(log, Panes) else f"what {log.name} gives, and takes back"
    if log.signed:
        remedy = f"write a Pipeline over {log.name}"
    return Fault(path, found, "a log of which nothing is taken back", remedy)


ARRIVAL = "arrival"
"""The name of the column of `Arrivals` that contains the processing time of the epoch in which a record arrived."""


@dataclass(frozen=True, kw_only=True)
class Arrivals(Log):
    """A log whose event times are arrival times, so that windows, including sessions, are windows of processing time.

    A record has the columns of the log `of` and a column `arrival`, which is the record's event time in this log.
    `arrival` is the processing time of the epoch in which the record arrived. The processing time is recorded with the
    epoch (rule T2), so replays and backfills have the same windows as the stream. The watermark is also the processing
    time, so no record is late, and a window is complete as soon as it has ended (Dataflow Model, 2.4: arrival times as
    event times, with a perfect watermark).

    >>> clicks = Log(name="clicks", columns={"at": "timestamp", "who": "string"}, event_time="at")
    >>> dict(Arrivals(of=clicks).columns)
    {'at': 'timestamp', 'who': 'string', 'arrival': 'timestamp'}
    """

    landed = False

    of: Log
    name: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    event_time: str = ARRIVAL

    def __post_init__(self) -> None:
        raise_faults(self.name or "arrivals", self._faults())
        object.__setattr__(self, "name", self.name or f"{self.of.name}_arrivals")
        object.__setattr__(self, "columns", MappingProxyType({**self.of.columns, ARRIVAL: "timestamp"}))
        object.__setattr__(self, "percentiles", MappingProxyType({}))

    @property
    def sources(self) -> tuple[Log, ...]:
        return (self.of,)

    @property
    def parts(self) -> tuple[Log, ...]:
        return (self.of,)

    def records(self, records: Iterable[Mapping[str, Any]], now: int) -> Iterator[dict[str, Any]]:
        """Yield an epoch's records with the column `arrival`; `now` is the epoch's processing time, in microseconds."""
        for record in records:
            yield {**record, ARRIVAL: moment(now)}

    def refused(self, path: str) -> Fault:
        """Return the fault that is reported if a definition without windows reads a log of arrivals."""
        expected = "a log itself, as only a pipeline's windows go by arrival"
        return Fault(path, self.name, expected, f"read {self.of.name}, or write a Pipeline over {self.name}")

    def _faults(self) -> Iterable[Fault]:
        of: object = self.of
        if self.name:
            yield from name_faults("log.name", self.name)
        if not isinstance(of, Log) or not of.landed:
            found = of.name if isinstance(of, Log) else of
            yield Fault("log.of", found, "a log that a source fills", "write of=views, and the steps into the pipeline")
        elif of.takes_back:
            yield taken_back("log.of", of, "")
        elif ARRIVAL in of.columns:
            yield Fault("log.of", ARRIVAL, "a log without a column of that name", f"rename the column of {of.name}")
