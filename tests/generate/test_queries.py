"""Spikes and dips of `pipelines/zeitgeist.py`: what was put in is found within seconds, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from tailrace.generate.queries import DIP, SPIKE, queries
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import EPOCH, seconds
from tailrace.model.step.chain_fold import ChainRun, fold_chain
from tailrace.model.step.progress import Progress, Seen
from tailrace.plan.loader import load_any

ZEITGEIST = load_any("pipelines/zeitgeist.py:zeitgeist")
SECOND = 1_000_000
Epochs = list[tuple[Sequence[Mapping[str, Any]], Clock]]
LENGTH = 600
RATES = {"weather": 30, "news": 60, "lottery": 20}
STALL = range(400, 440)
"""Seconds in which one of two partitions brings nothing; it all comes after."""


def wanted(term: str, second: int) -> float:
    """How many queries a second there are of a term: a spike of one, a dip of another."""
    if term == "lottery" and 200 <= second < 206:
        return 200
    if term == "weather" and 300 <= second < 308:
        return 2
    return RATES[term]


def made(seed: int) -> list[tuple[int, str, int, str]]:
    """Queries: the second in which each is read, its partition, its microsecond, its term."""
    chance, found = Random(seed), []
    for second in range(LENGTH):
        for term in RATES:
            # As a sum of many small chances, a count that varies as real ones do.
            rate = wanted(term, second)
            for _ in range(sum(chance.random() < rate / 1000 for _ in range(1000))):
                partition = chance.choice("ab")
                read = STALL.stop if partition == "b" and second in STALL else second
                found.append((read, partition, second * SECOND + chance.randrange(SECOND), term))
    return found


def epochs(queries: list[tuple[int, str, int, str]]) -> Epochs:
    """An epoch a second, its watermark as a stream would have it."""
    progress, found = Progress(), Epochs()
    strategy = ZEITGEIST.log.strategy
    for second in range(LENGTH):
        read = [one for one in queries if one[0] == second]
        latest = {name: max((at for _, of, at, _ in read if of == name), default=None) for name in "ab"}
        seen = {f"queries-{name}": Seen(at) for name, at in latest.items() if at is not None}
        progress = progress.after(strategy, seen, now=second * SECOND)
        records = [{"term": term, "at": EPOCH + seconds(at / SECOND)} for _, _, at, term in read]
        found.append((records, Clock(second, progress.watermark, second * SECOND)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_spike_and_a_dip_are_found_within_seconds_and_a_stalled_partition_is_no_dip(seed: int) -> None:
    told, runs = list[tuple[str, str, int, int]](), list[ChainRun]()
    for bundle, clock in epochs(made(seed)):
        known = len(told)
        runs = fold_chain(ZEITGEIST, [(bundle, clock)], runs)
        for one in runs[-1].productions[known:]:
            told.append((one.values["what"], one.key[0], one.at // SECOND, clock.epoch))
    assert [one[:2] for one in told] == [("spike", "lottery"), ("dip", "weather")]
    for (_, _, second, epoch), began in zip(told, (200, 300), strict=True):
        assert began < second <= began + 8
        assert epoch <= second + 8, "it is known within seconds"


@pytest.mark.slow
def test_in_a_log_that_is_made_up_the_spike_and_the_dip_are_found_and_nothing_else() -> None:
    length = 240 * SECOND
    made = queries(rate=120, length=length, seed=1, first=0)
    bundles: dict[int, list[Mapping[str, Any]]] = {}
    for one in made:
        at = EPOCH + seconds(one.record["at"] / SECOND)
        bundles.setdefault(one.known // SECOND, []).append({"term": one.record["term"], "at": at})
    found = [
        (bundle, Clock(place, (known - 5) * SECOND, known * SECOND))
        for place, (known, bundle) in enumerate(bundles.items())
    ]
    [run] = fold_chain(ZEITGEIST, found)
    told = [(one.values["what"], one.key[0], one.at // SECOND) for one in run.productions]
    assert [one[:2] for one in told] == [("spike", SPIKE), ("dip", DIP)]
    for (_, _, second), share in zip(told, (1 / 2, 3 / 4), strict=True):
        assert 0 <= second - length * share / SECOND <= 8
