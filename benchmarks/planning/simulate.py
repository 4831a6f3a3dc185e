"""A simulation of a stream, epoch by epoch: records arrive, tasks run in waves on cores, commits come in turn.

The answers follow in a thread of their own, a quarter of the time at most, as `tailrace.fold.follower_pace` has it, so
that the stream does not wait for them. Tables gain files, manifests and snapshots, and are trimmed and maintained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.model import Costs, Load
from tailrace.fold.follower_pace import FOLLOW_EVERY

DAY = 86_400.0
COMMITS = 2
"""Catalog commits of a table in an epoch: the branch is written, and main is moved to it. Log and ledger have them."""

FRESHNESS = 60.0
"""Seconds for which answers may rest, however dear it is to bring them up (`TAILRACE_FRESHNESS`)."""

_PARTS = 4
"""Bringing answers up takes one part in so many of the time."""


@dataclass(frozen=True)
class Setting:
    """What is set for a stream: cores of its executors, partitions of Kafka, parts of a shuffle, `--every` seconds."""

    cores: int
    sources: int
    shuffles: int
    every: float = 0.0

    def keys(self, assumed: Assumptions) -> int:
        return assumed.keys_of_core * self.cores


@dataclass(frozen=True)
class Day:
    """A simulated stretch of time, a day unless said otherwise: what came in, and what it took and left."""

    seconds: float
    records: float
    epochs: int
    tasks: float
    behind: float
    """Records that had come and were in no epoch at the end."""
    epoch_p50: float
    latency_p50: float
    latency_p95: float
    files: float
    metadata_files: float
    metadata_bytes: float
    data_bytes: float
    commits: float
    executor_cpu: float
    driver_cpu: float
    maintenance_cpu: float
    followings: int
    largest: float
    """Records of the largest epoch."""
    busy: dict[str, float]
    """Seconds of the stream's time by what it waited for: the driver, the executors, storage, records."""

    @property
    def bottleneck(self) -> str:
        """What the stream waits for most, records left out."""
        return max((name for name in self.busy if name != "records"), key=lambda name: self.busy[name])


def load_of(setting: Setting, assumed: Assumptions, records: float, span: float, followed: bool = False) -> Load:
    """The content of an epoch of so many records, that came in `span` seconds; keys come at random."""
    # A record's window is one of those that the span reaches into, and the one before.
    windows = setting.keys(assumed) * (1 + span / assumed.window)
    touched = windows * -math.expm1(-records / windows) if records else 0.0
    return Load(records, touched, 2 * setting.keys(assumed), setting.sources, setting.shuffles, followed)


def epoch_seconds(
    costs: Costs, setting: Setting, assumed: Assumptions, load: Load, snapshots: int = 0
) -> dict[str, float]:
    """Seconds of an epoch by what it waits for. Following, in a thread of its own, is not in it."""
    load = replace(load, followed=False)
    commits = 2 * COMMITS
    waves = math.ceil(setting.sources / setting.cores) + 2 * math.ceil(setting.shuffles / setting.cores)
    return {
        "driver": costs.seconds_epoch
        + costs.seconds_of_driver * (costs.driver(load) + commits / 2 * costs.commit_snapshot * snapshots),
        "executors": costs.seconds_of_executor * costs.makespan(load, setting.cores),
        "storage": commits * assumed.trips_of_commit * assumed.round_trip + waves * assumed.task_write,
    }


def simulated(
    costs: Costs, setting: Setting, assumed: Assumptions, rate: float, *, seconds: float = DAY, swing: float = 0.0
) -> Day:
    """Run a stream at a mean rate of records a second, that goes up and down once in the time by `swing`."""
    tables = _Tables(costs, setting, assumed)
    now, cut, epochs = 0.0, 0.0, 0
    lengths, waits = list[float](), list[tuple[float, float, float]]()
    busy = dict.fromkeys(("driver", "executors", "storage", "records"), 0.0)
    executor = driver = tasks = largest = 0.0
    most = float(assumed.most_records_of_core * setting.cores)
    follow_ends, rests, followings, followed_at = 0.0, 0.0, 0, 0
    while now < seconds:
        came = _arrived(rate, swing, now, seconds)
        records = min(came - cut, most)
        load = load_of(setting, assumed, records, max(setting.every, lengths[-1] if lengths else 1.0))
        parts = epoch_seconds(costs, setting, assumed, load, tables.snapshots)
        took = sum(parts.values())
        for name, part in parts.items():
            busy[name] += part
        idle = max(0.0, setting.every - took)
        busy["records"] += idle
        first, last = _when(rate, swing, cut, seconds), _when(rate, swing, cut + records, seconds)
        known = now + took * costs.seconds_known
        waits.append((known - first, known - last, records))
        cut, largest = cut + records, max(largest, records)
        lengths.append(took + idle)
        now += took + idle
        epochs += 1
        executor, driver, tasks = (
            executor + costs.executor(load),
            driver + costs.driver(load),
            tasks + costs.tasks(load),
        )
        tables.epoch(load)
        if epochs - followed_at >= FOLLOW_EVERY - 2 and now >= max(follow_ends, rests):
            cpu = costs.driver_follow + costs.driver_followed_row * load.open
            lasts = costs.seconds_of_driver * cpu + COMMITS * assumed.trips_of_commit * assumed.round_trip
            follow_ends, rests = now + lasts, now + min(FRESHNESS, _PARTS * lasts)
            driver, followings, followed_at = driver + cpu, followings + 1, epochs
            tables.followed(load)
    p50, p95 = _percentiles(waits, (0.5, 0.95))
    lengths.sort()
    return Day(
        now, cut, epochs, tasks, _arrived(rate, swing, now, seconds) - cut, lengths[len(lengths) // 2], p50, p95,
        tables.files, tables.metadata_files, tables.metadata_bytes, tables.data_bytes, tables.commits, executor, driver,
        costs.maintain_file * tables.files + costs.maintain_record * cut, followings, largest, busy,
    )  # fmt: skip


class _Tables:
    """What the commits of log, ledger and answers leave."""

    def __init__(self, costs: Costs, setting: Setting, assumed: Assumptions) -> None:
        self.costs, self.assumed = costs, assumed
        self.files = self.metadata_files = self.metadata_bytes = self.data_bytes = self.commits = 0.0
        self.snapshots = 1

    def epoch(self, load: Load) -> None:
        costs = self.costs
        self.files += load.files
        self.data_bytes += costs.file_bytes * load.files
        self.data_bytes += costs.log_bytes * load.records + costs.ledger_bytes * load.touched
        for files in (load.sources, load.files - load.sources):
            self._commit(COMMITS, files)
        self.snapshots += 1
        if self.snapshots >= self.assumed.most_snapshots:
            self.snapshots = self.assumed.most_snapshots // 5

    def followed(self, load: Load) -> None:
        files = math.ceil(load.open / self.assumed.rows_of_file)
        self.files += files
        self.data_bytes += self.costs.answer_bytes * load.open
        self._commit(COMMITS, files)

    def _commit(self, versions: int, files: float) -> None:
        costs = self.costs
        self.commits += versions
        # A file of metadata for each version; a manifest and a list of them for the snapshot.
        self.metadata_files += versions + 2
        self.metadata_bytes += versions * (costs.metadata_fixed + costs.metadata_snapshot * self.snapshots)
        self.metadata_bytes += costs.manifest_fixed + costs.manifest_file * files + costs.list_bytes


def _arrived(rate: float, swing: float, now: float, day: float) -> float:
    """Records that have come by a time: least as the day begins, most in its middle."""
    return rate * (now - swing * day / math.tau * math.sin(math.tau * now / day))


def _when(rate: float, swing: float, record: float, day: float) -> float:
    """The time at which a record came: the inverse of `_arrived`, by halving."""
    if not rate or not swing:
        return record / rate if rate else 0.0
    low, high = 0.0, 2 * day
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _arrived(rate, swing, middle, day) < record else (low, middle)
    return (low + high) / 2


def _percentiles(waits: list[tuple[float, float, float]], which: tuple[float, ...]) -> list[float]:
    """Percentiles of the waits of records, which of an epoch are spread evenly from its first to its last."""
    steps = 10
    spread = sorted(
        (last + (first - last) * (step + 0.5) / steps, records / steps)
        for first, last, records in waits for step in range(steps) if records
    )  # fmt: skip
    whole, found = sum(records for _, records in spread), []
    for part in which:
        so_far = 0.0
        for wait, records in spread:
            so_far += records
            if so_far >= part * whole:
                found.append(wait)
                break
    return found or [0.0] * len(which)


def sustainable(costs: Costs, setting: Setting, assumed: Assumptions) -> float:
    """Maximum number of records a second at which a stream keeps up, when its tables have the most snapshots.

    An epoch of `every` seconds' records has to be done in those; where nothing is set, in `longest / 3`.
    """
    span = max(setting.every, assumed.longest / 3)
    most = assumed.most_records_of_core * setting.cores / span
    low, high = 0.0, most
    for _ in range(50):
        rate = (low + high) / 2
        load = load_of(setting, assumed, rate * span, span)
        took = sum(epoch_seconds(costs, setting, assumed, load, assumed.most_snapshots).values())
        low, high = (rate, high) if took <= span else (low, rate)
    return low


def heap(costs: Costs, setting: Setting, assumed: Assumptions) -> float:
    """Bytes that a driver's heap needs: what Spark remembers of the last epochs, with half as much again to work in."""
    epochs = assumed.retained_stages / assumed.stages
    load = load_of(setting, assumed, 1.0, 1.0)
    return 1.5 * (costs.heap + epochs * (costs.heap_epoch + costs.heap_task * costs.tasks(load)))
