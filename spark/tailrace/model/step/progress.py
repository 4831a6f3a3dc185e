"""The low watermark of a log, which is the lowest watermark of the partitions of its source (rule T3).

A partition's watermark states that later records of the partition are unlikely to have older event times. The watermark
follows the partition's records according to the log's strategy (`watermark_strategies`). The log's watermark is the
minimum over all partitions (MillWheel, 4.5 and 5.2: injectors). So a partition that is read slowly holds back the log,
and its records do not become late because of the slow reading. A partition without new records for as long as `idle` no
longer holds back the watermark; otherwise, a partition that is empty or gone would keep every window open.

The progress of a log is data (`Progress`): it is part of the log's commits, and a restart continues from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration
from tailrace.model.logs.watermark_strategies import WatermarkStrategy

ALL = ""
"""The name of the single partition of a source that does not distinguish partitions."""


@dataclass(frozen=True)
class Seen:
    """The summary of a partition's records in an epoch; instants are in microseconds.

    `latest` is the latest event time, and `arrived` the latest arrival time. `lags` counts the records by the bucket of
    their lag, that is, the arrival time less the event time (`watermark_strategies.lag_bucket`). `lags` is filled only
    if the strategy needs the lags. `complete` is the instant up to which the source states that the partition is
    complete. `latest`, `arrived` and `complete` are None if there is no value.
    """

    latest: int | None = None
    arrived: int | None = None
    lags: Mapping[int, int] = field(default_factory=dict)
    complete: int | None = None


@dataclass(frozen=True)
class Partition:
    """The progress of a partition.

    The progress consists of the partition's watermark, its latest event time (None before its first record), and the
    processing time at which it last had anything new. All three are in microseconds.
    """

    watermark: int
    latest: int | None
    active: int


@dataclass(frozen=True)
class Progress:
    """The progress of a log: its watermark, which never goes back, its partitions, and the lags of its records.

    `now` is the processing time of the epoch in which this progress was reached. `idle` is how long a partition without
    new records still holds back the log; None means for ever. Both are in microseconds.

    Law: an additional partition never moves the watermark forward.

    >>> from tailrace.model.logs.watermark_strategies import BoundedDisorder
    >>> from tailrace.model.base.time import seconds
    >>> strategy = BoundedDisorder(seconds(1))
    >>> a, b = {"a": Seen(latest=9_000_000)}, {"b": Seen(latest=4_000_000)}
    >>> Progress().after(strategy, a, now=0).watermark, Progress().after(strategy, a | b, now=0).watermark
    (8000000, 3000000)
    """

    watermark: int = BEGINNING
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    lags: Mapping[int, int] = field(default_factory=dict)
    now: int = BEGINNING
    idle: int | None = None

    def after(
        self,
        strategy: WatermarkStrategy,
        seen: Mapping[str, Seen],
        now: int,
        *,
        there: Iterable[str] = (),
        complete: int = BEGINNING,
    ) -> Progress:
        """Return the log's progress after an epoch at processing time `now`.

        `seen` has the summary of each partition that had something new in the epoch.

        `there` names the partitions that the source knows, even if they have never had a record. `complete` is the
        instant up to which somebody has declared the whole log complete.
        """
        now, idle = max(now, self.now), None if strategy.idle is None else duration(strategy.idle)
        lags = strategy.learned(self.lags, [one.lags for one in seen.values()])
        partitions = {name: Partition(BEGINNING, None, now) for name in (*there, *strategy.partitions)} | dict(
            self.partitions
        )
        for name, one in seen.items():
            partitions[name] = _moved(strategy, partitions.get(name, Partition(BEGINNING, None, now)), one, lags, now)
        progress = replace(self, partitions=partitions, lags=lags, now=now, idle=idle)
        holding = [partitions[name].watermark for name in progress.holding]
        reached = min(holding, default=self.watermark)
        return replace(progress, watermark=min(END_OF_TIME, max(self.watermark, reached, complete)))

    @property
    def holding(self) -> tuple[str, ...]:
        """The partitions for which the watermark waits: all partitions that are not idle."""
        return tuple(name for name in sorted(self.partitions) if not self.is_idle(name))

    @property
    def all_idle(self) -> bool:
        """Whether every partition is idle. If so, a definition with other logs does not wait for this log."""
        return bool(self.partitions) and not self.holding

    @property
    def behind(self) -> tuple[str, ...]:
        """The partitions that hold back the watermark: the non-idle partitions with the lowest watermark."""
        least = min((self.partitions[name].watermark for name in self.holding), default=None)
        return tuple(name for name in self.holding if self.partitions[name].watermark == least)

    def stalled(self, after: int) -> dict[str, int]:
        """Return the partitions that hold back the watermark and have had nothing new for at least `after`.

        The value for each partition is how long it has had nothing new; this time and `after` are in microseconds. The
        result is empty if the source has only one partition.
        """
        if len(self.partitions) < 2:
            return {}
        silent = {name: self.now - self.partitions[name].active for name in self.behind}
        return {name: length for name, length in silent.items() if length >= after}

    def is_idle(self, name: str) -> bool:
        """Return True if a partition has had nothing new for so long that the watermark does not wait for it."""
        return self.idle is not None and self.now - self.partitions[name].active >= self.idle

    def wakes(self) -> int | None:
        """Return the processing time, in microseconds, at which the next partition becomes idle, or None.

        The result is None if partitions never become idle. The result is also None if fewer than two partitions are not
        idle, because the watermark of a log whose partitions are all idle stays where it is.
        """
        if self.idle is None or len(self.holding) < 2:
            return None
        return min(self.partitions[name].active for name in self.holding) + self.idle

    def text(self) -> str:
        """Return the progress as JSON for a commit; `parsed` reads this JSON."""
        partitions = {name: [one.watermark, one.latest, one.active] for name, one in sorted(self.partitions.items())}
        lags = {str(bucket): count for bucket, count in sorted(self.lags.items())}
        data = {"watermark": self.watermark, "now": self.now, "idle": self.idle, "partitions": partitions, "lags": lags}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def parsed(cls, text: str) -> Progress:
        """Read the progress from the text in a commit.

        >>> progress = Progress(5, {"a": Partition(5, 7, 9)}, {3: 1}, 9, 60)
        >>> Progress.parsed(progress.text()) == progress
        True
        """
        data = json.loads(text)
        return cls(
            data["watermark"],
            {name: Partition(*one) for name, one in data["partitions"].items()},
            {int(bucket): count for bucket, count in data["lags"].items()},
            data["now"],
            data["idle"],
        )


def least(logs: Iterable[tuple[int, bool]]) -> int:
    """Return the common watermark of several logs: the lowest watermark of the logs that are not idle.

    Each log is passed as a pair: its watermark, and whether it is idle. If all logs are idle, return the beginning of
    time: the common watermark then stays where it was (rule T3).

    >>> least([(7, False), (5, True)])
    7
    """
    return min((watermark for watermark, idle in logs if not idle), default=BEGINNING)


def _moved(strategy: WatermarkStrategy, before: Partition, seen: Seen, lags: Mapping[int, int], now: int) -> Partition:
    watermarks = [before.watermark]
    if seen.latest is not None:
        watermarks.append(strategy.reached(seen.latest, seen.latest if seen.arrived is None else seen.arrived, lags))
    if seen.complete is not None:
        watermarks.append(seen.complete)
    latest = max((at for at in (before.latest, seen.latest) if at is not None), default=None)
    return Partition(min(END_OF_TIME, max(watermarks)), latest, now)
