"""The settings for a number of cores: of those within the limits, the ones that take the most records a second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.model import Costs
from benchmarks.planning.simulate import Day, Setting, heap, simulated, sustainable

SIZES = (10, 100, 1_000)
"""Cores of a stream's executors."""

_SPANS = (0.0, 5.0, 10.0, 20.0, 30.0)
_SHUFFLES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
_SOURCES = (0.25, 0.5, 1.0)
"""Parts of a shuffle, and partitions of the topic, for each core."""

NEAR = 0.97
"""Of settings that take this part of the most records, the one with the fewest tasks is chosen: it writes less."""


@dataclass(frozen=True)
class Size:
    """The chosen setting for so many cores, the most that it sustains, and a day at less than that."""

    setting: Setting
    sustained: float
    """Records a second."""
    heap: float
    """Bytes of the driver's heap."""
    day: Day
    most_records: int
    """Of an epoch: what the executors are taken to hold."""

    @property
    def driver_memory(self) -> int:
        """GB for `TAILRACE_DRIVER_MEMORY`: the next power of two, and not less than 2."""
        size = 2
        while size * 1e9 < self.heap:
            size *= 2
        return size

    @property
    def per_epoch(self) -> int:
        """Records for `--per-epoch`: twice the largest epoch of the day for a backlog, if the executors hold them."""
        return min(_leading(2 * self.day.largest), self.most_records)


def candidates(cores: int) -> Iterator[Setting]:
    for every in _SPANS:
        for source in _SOURCES:
            for shuffle in _SHUFFLES:
                yield Setting(cores, max(1, round(cores * source)), max(1, round(cores * shuffle)), every)


def size_of(costs: Costs, cores: int, assumed: Assumptions) -> Size:
    """Choose for a number of cores, and simulate a day with the choice.

    Raises `ValueError` where nothing is within the limits.
    """
    within = []
    for setting in candidates(cores):
        if heap(costs, setting, assumed) > assumed.most_heap:
            continue
        most = sustainable(costs, setting, assumed)
        # Records of an epoch wait for it to be cut, and then for it to be published.
        tried = simulated(costs, setting, assumed, most * assumed.mean_load * (1 + assumed.swing), seconds=600.0)
        if most and tried.latency_p95 <= assumed.longest:
            within.append((most, setting))
    if not within:
        raise ValueError(f"no setting for {cores} cores is within {assumed.longest} s and {assumed.most_heap} bytes")
    best = max(most for most, _ in within)
    most, setting = min(
        ((most, setting) for most, setting in within if most >= NEAR * best),
        key=lambda one: (one[1].sources + one[1].shuffles, -one[1].every),
    )
    day = simulated(costs, setting, assumed, most * assumed.mean_load, swing=assumed.swing)
    return Size(setting, most, heap(costs, setting, assumed), day, assumed.most_records_of_core * cores)


def sizes(costs: Costs, assumed: Assumptions) -> list[Size]:
    return [size_of(costs, cores, assumed) for cores in SIZES]


def _leading(value: float) -> int:
    """A value up to its next 1, 2 or 5 times a power of ten.

    >>> _leading(1_200_000), _leading(5_000)
    (2000000, 5000)
    """
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= value:
                return digit * power
        power *= 10
