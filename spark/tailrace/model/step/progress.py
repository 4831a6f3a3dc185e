"""The watermark of a log, which is the minimum of the watermarks of its source's partitions (rule T3).

A partition's watermark is an event time; later records of the partition are unlikely to have an earlier event time. The
log's strategy computes the watermark of a partition from the partition's records (`watermark_strategies`). The log's
watermark is the minimum of the watermarks of all partitions (MillWheel, 4.5 and 5.2: injectors). So if a partition is
read slowly, the log's watermark waits for this partition, and slow reading alone makes no record late. If a partition
has had no new records for the time `idle`, the log's watermark stops waiting for this partition. Otherwise, an empty or
removed partition would keep every window open.

The progress of a log is an object (`Progress`) that is stored with the log's commits. After a restart, the stream
continues from the stored progress.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration
from tailrace.model.logs.watermark_strategies import WatermarkStrategy

ALL = ""
"""The name of the single partition of a source that is not partitioned."""


@dataclass(frozen=True)
class Seen:
    """The summary of a partition's records in an epoch; instants are in microseconds.

    `latest` is the latest event time, and `arrived` is the latest arrival time. A record's lag is its arrival time
    minus its event time. `lags` maps a bucket of lags to the number of records whose lag is in this bucket
    (`watermark_strategies.lag_bucket`). `lags` is filled only if the strategy needs the lags. `complete` is the instant
    up to which the source declares the partition complete. `latest`, `arrived` and `complete` are None if there is no
    value.
    """

    latest: int | None = None
    arrived: int | None = None
    lags: Mapping[int, int] = field(default_factory=dict)
    complete: int | None = None


@dataclass(frozen=True)
class Partition:
    """The progress of one partition of a log's source.

    `watermark` is the partition's watermark. `latest` is the latest event time of the partition's records, or None
    before the first record. `active` is the processing time of the last epoch in which the partition had something new.
    If the partition has never had anything new, `active` is the processing time of the epoch in which the partition was
    first listed. All times are in microseconds.
    """

    watermark: int
    latest: int | None
    active: int


@dataclass(frozen=True)
class Progress:
    """The progress of a log: its watermark (which never goes back), the progress of its partitions, and its records'
    lags.

    `now` is the processing time of the epoch in which this progress was reached. `idle` is the time for which the
    watermark waits for a partition that has no new records; None means that it always waits. `now` and `idle` are in
    microseconds.

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

        `seen` maps the name of each partition that had something new in the epoch to the partition's summary.

        `there` names the partitions that exist in the source, even if they have never had a record. `complete` is the
        instant up to which a user has declared the whole log complete.
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
        """Whether every partition is idle. If so, a definition that also reads other logs does not wait for this
        log.
        """
        return bool(self.partitions) and not self.holding

    @property
    def behind(self) -> tuple[str, ...]:
        """The partitions that hold back the log's watermark: the non-idle partitions with the lowest watermark."""
        least = min((self.partitions[name].watermark for name in self.holding), default=None)
        return tuple(name for name in self.holding if self.partitions[name].watermark == least)

    def stalled(self, after: int) -> dict[str, int]:
        """Return the partitions that hold back the log's watermark and have had nothing new for at least the time
        `after`.

        The result maps the name of a partition to the time for which the partition has had nothing new. All times are
        in microseconds. The result is empty if the source has only one partition.
        """
        if len(self.partitions) < 2:
            return {}
        silent = {name: self.now - self.partitions[name].active for name in self.behind}
        return {name: length for name, length in silent.items() if length >= after}

    def is_idle(self, name: str) -> bool:
        """Return True if a partition has had nothing new for so long that the log's watermark does not wait for it."""
        return self.idle is not None and self.now - self.partitions[name].active >= self.idle

    def text(self) -> str:
        """Return the progress as a JSON text, which is stored in a commit of the log; `parsed` reads this text."""
        partitions = {name: [one.watermark, one.latest, one.active] for name, one in sorted(self.partitions.items())}
        lags = {str(bucket): count for bucket, count in sorted(self.lags.items())}
        data = {"watermark": self.watermark, "now": self.now, "idle": self.idle, "partitions": partitions, "lags": lags}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def parsed(cls, text: str) -> Progress:
        """Read the progress from the JSON text that a commit of the log contains.

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

    A log is passed as a pair: its watermark, and whether it is idle. If all logs are idle, the beginning of time is
    returned, so that the common watermark does not advance (rule T3).

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
