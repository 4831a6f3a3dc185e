"""Watermark strategies, which compute the watermark of a partition from its records (MillWheel, 5.2: injectors).

If the source does not know which records will still arrive, a watermark is an estimate (Dataflow Model, 1.3). A record
behind the watermark is late, but it is not lost. Each strategy is a trade-off: the sooner windows are considered
complete, the more records are late.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tailrace.model.base.errors import Fault
from tailrace.model.base.time import BEGINNING, duration, instant, minutes, waits
from tailrace.model.base.values import in_utc

ENOUGH = 1_000
"""The number of records that must have arrived before `ObservedLag` uses the lags of the records."""

REMEMBERED = 1_000_000
"""The approximate number of records whose lags are remembered.

If more records have been counted, all counts are halved, so that older lags lose weight.
"""

IDLE = minutes(5)
"""The default time after which the watermark stops waiting for a partition without new records."""

LAG_STEPS = 8
"""The number of lag buckets per doubling of the lag. With 8 buckets, the upper edge of a bucket is 9 % above its lower
edge.
"""


class WatermarkStrategy(ABC):
    """The base class of strategies that compute a partition's watermark from its records.

    The watermark never goes back, even if a strategy returns an earlier watermark. A custom strategy must be a frozen
    dataclass with a method `reached`.
    """

    follows_records = True
    """Whether the watermark depends on the records; False if it depends only on file names and commands
    (`Injected`).
    """

    learns = False
    """Whether the watermark depends on the lags of the records (arrival time minus event time). If so, the stream
    counts the lags.
    """

    idle: timedelta | None = None
    """The time for which the watermark waits for a partition without new records; None means that it always waits."""

    partitions: Sequence[str] = ()
    """The names of partitions for which the watermark waits even before their first record arrives."""

    @abstractmethod
    def reached(self, latest: int, arrived: int, lags: Mapping[int, int]) -> int:
        """Compute a partition's watermark from the latest event time and the latest arrival time of its records in an
        epoch.

        All times are in microseconds. `lags` describes the lags of all records of the log so far: it maps a bucket to
        the number of lags in this bucket.
        """

    @property
    def bound(self) -> timedelta | None:
        """The maximum time by which the watermark is behind the latest event time; None if there is no known
        maximum.
        """
        return None

    def learned(self, lags: Mapping[int, int], new: Iterable[Mapping[int, int]]) -> dict[int, int]:
        """Add the lag counts of an epoch to the counts so far; if the total exceeds `REMEMBERED`, halve all counts."""
        found = dict(lags)
        for counts in new:
            for bucket, count in counts.items():
                found[bucket] = found.get(bucket, 0) + count
        while sum(found.values()) > REMEMBERED:
            found = {bucket: count // 2 for bucket, count in found.items() if count > 1}
        return found

    def completes(self, file: str) -> tuple[str, int] | None:
        """Return a file's partition, and the instant up to which the file makes this partition complete.

        Returns None if the name of the file contains no instant.
        """
        return None

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the strategy's settings."""
        if self.idle is not None and not (waits(self.idle) and self.idle):
            yield Fault(f"{path}.idle", self.idle, "a duration above zero, or None", "write idle=minutes(5)")


@dataclass(frozen=True)
class BoundedDisorder(WatermarkStrategy):
    """A strategy in which the watermark is behind the partition's latest event time by a fixed time, `behind`.

    Law: a record is in time if it is behind the latest event time by at most `behind`.

    >>> from tailrace.model.base.time import seconds
    >>> BoundedDisorder(seconds(1)).reached(latest=9_000_000, arrived=0, lags={})
    8000000
    """

    behind: timedelta
    idle: timedelta | None = IDLE

    def reached(self, latest: int, arrived: int, lags: Mapping[int, int]) -> int:
        return max(BEGINNING, latest - duration(self.behind))

    @property
    def bound(self) -> timedelta:
        return self.behind

    def faults(self, path: str) -> Iterable[Fault]:
        yield from super().faults(path)
        if not waits(self.behind):
            yield Fault(f"{path}.behind", self.behind, "a duration of zero or more", "write minutes(10)")


@dataclass(frozen=True)
class ObservedLag(WatermarkStrategy):
    """A strategy that computes the watermark from the observed lags of the records.

    The watermark is behind the latest arrival by the lag that `share` per cent of the records do not exceed. The lag of
    a record is its arrival time minus its event time. So arrival times must be known and in order, as they are in a
    Kafka partition. Until a thousand records have arrived, the watermark is behind the latest arrival by `at_most`. If
    the observed lag is larger than `at_most`, the watermark is behind the latest arrival by `at_most`, too.

    Law: if the lags of new records are distributed like the lags so far, about `share` per cent of the new records are
    in time.

    >>> from tailrace.model.base.time import seconds
    >>> strategy = ObservedLag(90, at_most=seconds(60))
    >>> lags = {lag_bucket(1_000_000): 950, lag_bucket(30_000_000): 50}
    >>> (100_000_000 - strategy.reached(0, 100_000_000, lags)) / 1e6
    1.023
    """

    share: int
    at_most: timedelta
    idle: timedelta | None = IDLE

    learns = True

    def reached(self, latest: int, arrived: int, lags: Mapping[int, int]) -> int:
        return max(BEGINNING, arrived - min(duration(self.at_most), self._lag(lags)))

    def _lag(self, lags: Mapping[int, int]) -> int:
        total, sofar = sum(lags.values()), 0
        if total >= ENOUGH:
            for bucket in sorted(lags):
                sofar += lags[bucket]
                if sofar * 100 >= total * self.share:
                    return lag_edge(bucket)
        return duration(self.at_most)

    @property
    def bound(self) -> timedelta:
        return self.at_most

    def faults(self, path: str) -> Iterable[Fault]:
        yield from super().faults(path)
        share: object = self.share
        if not isinstance(share, int) or isinstance(share, bool) or not 0 < share <= 100:
            yield Fault(f"{path}.share", share, "a whole number of per cent between 1 and 100", "write 99")
        if not waits(self.at_most):
            yield Fault(f"{path}.at_most", self.at_most, "a duration of zero or more", "write at_most=hours(1)")


@dataclass(frozen=True)
class Injected(WatermarkStrategy):
    """A strategy in which the watermark follows file names and the command `tailrace watermark`, but not the records.

    `files` is a regular expression that is searched for in the path of each file. The group `until` of this expression
    matches an instant in ISO 8601, which is in UTC if the text names no time zone. Once a file has been read, its
    partition is complete up to that instant. If the expression has a group `partition`, the text that this group
    matches is the name of the file's partition. `partitions` names the partitions for which the watermark waits even
    before their first file arrives.

    >>> drops = Injected(files=r"(?P<partition>eu|us)/until-(?P<until>[0-9T-]+)", partitions=("eu", "us"))
    >>> drops.completes("file:/drops/eu/until-2026-01-01T06.parquet")
    ('eu', 1767247200000000)
    """

    files: str | None = None
    partitions: tuple[str, ...] = ()
    idle: timedelta | None = None

    follows_records = False

    def reached(self, latest: int, arrived: int, lags: Mapping[int, int]) -> int:
        return BEGINNING

    def completes(self, file: str) -> tuple[str, int] | None:
        found = re.search(self.files, file) if self.files is not None else None
        if found is None or found["until"] is None:
            return None
        try:
            until = instant(in_utc(datetime.fromisoformat(found["until"])))
        except ValueError:
            return None
        return found.groupdict().get("partition") or "", until

    def faults(self, path: str) -> Iterable[Fault]:
        yield from super().faults(path)
        example = r"""write files=r"until-(?P<until>[0-9T-]+)" """.strip()
        if self.files is not None:
            try:
                groups = re.compile(self.files).groupindex
            except (re.error, TypeError):
                yield Fault(f"{path}.files", self.files, "a regular expression", example)
            else:
                if "until" not in groups:
                    yield Fault(f"{path}.files", self.files, "a regular expression with a group named until", example)
        names: object = self.partitions
        if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
            yield Fault(f"{path}.partitions", names, "names", 'write partitions=("eu", "us")')


def lag_bucket(lag: int) -> int:
    """Return the bucket of a lag, given in microseconds. A lag of zero or less is in bucket 0."""
    return math.ceil(LAG_STEPS * math.log2(1 + max(0, lag) / 1000))


def lag_edge(bucket: int) -> int:
    """Return the largest lag of a bucket, in microseconds.

    >>> all(lag <= lag_edge(lag_bucket(lag)) <= 1.1 * lag + 1000 for lag in (0, 1, 5_000, 10**6, 10**12))
    True
    """
    return math.ceil(1000 * (2 ** (bucket / LAG_STEPS) - 1))
