"""The laws of low watermarks: they never go back, and wait for every partition that is not idle (rule T3)."""

from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, minutes, seconds
from tailrace.model.logs.watermark_strategies import (
    BoundedDisorder,
    Injected,
    ObservedLag,
    WatermarkStrategy,
    lag_bucket,
    lag_edge,
)
from tailrace.model.step.progress import Progress, Seen
from tests.support.cases.strategies import examples

SECOND = 1_000_000
NAMES = ("a", "b", "c")
SEEDS = st.integers(0, 2**32)
INSTANTS = st.integers(BEGINNING, END_OF_TIME)
WAITS = st.integers(0, 600).map(seconds)
IDLE = st.none() | st.integers(1, 600).map(seconds)
STRATEGIES: st.SearchStrategy[WatermarkStrategy] = st.one_of(
    st.builds(BoundedDisorder, WAITS, IDLE),
    st.builds(ObservedLag, st.integers(1, 100), WAITS, IDLE),
    st.builds(Injected, partitions=st.sampled_from([(), ("a",), ("a", "b")]), idle=IDLE),
)
SEEN = st.builds(
    Seen,
    st.none() | INSTANTS,
    st.none() | INSTANTS,
    st.dictionaries(st.integers(0, 300), st.integers(1, 2_000_000), max_size=4),
    st.none() | INSTANTS,
)
EPOCHS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(NAMES), SEEN),
        INSTANTS,
        st.lists(st.sampled_from(NAMES), unique=True),
        st.just(BEGINNING) | INSTANTS,
    ),
    max_size=8,
)


@examples(100)
@given(STRATEGIES, EPOCHS)
def test_T3_a_watermark_never_goes_back_and_a_restart_changes_nothing(
    strategy: WatermarkStrategy, epochs: list[tuple[dict[str, Seen], int, list[str], int]]
) -> None:
    progress = Progress()
    for seen, now, there, complete in epochs:
        after = Progress.parsed(progress.text()).after(strategy, seen, now, there=there, complete=complete)
        assert after == progress.after(strategy, seen, now, there=there, complete=complete)
        assert progress.watermark <= after.watermark <= END_OF_TIME
        assert after.now >= progress.now
        assert after.watermark >= complete
        for name, one in progress.partitions.items():
            assert after.partitions[name].watermark >= one.watermark
        assert set(after.behind) <= set(after.holding) <= set(after.partitions)
        for name in after.holding:
            held = after.partitions[name].watermark
            assert after.watermark <= max(held, progress.watermark, complete)
        progress = after


@examples(60)
@given(SEEDS, st.integers(0, 60), st.integers(1, 4))
def test_T3_of_partitions_that_are_read_at_different_speeds_no_record_is_late(
    seed: int, bound: int, width: int
) -> None:
    """As long as none is idle, however far apart they are, and whichever has its first record when."""
    chance, strategy = random.Random(seed), BoundedDisorder(seconds(bound), idle=None)
    names = [f"p{number}" for number in range(width)]
    reached = dict.fromkeys(names, 0)
    progress, late = Progress(), 0
    for epoch in range(30):
        seen = {}
        for name in (name for name in names if chance.random() < 0.5):
            times = []
            for _ in range(chance.randrange(1, 4)):
                reached[name] += chance.randrange(0, 500)
                times.append((reached[name] - chance.randrange(0, bound + 1)) * SECOND)
            late += sum(at < progress.watermark for at in times)
            seen[name] = Seen(max(times))
        progress = progress.after(strategy, seen, epoch, there=names)
    assert late == 0


@examples(60)
@given(STRATEGIES, EPOCHS, SEEN)
def test_T3_a_partition_more_never_brings_the_watermark_forward(
    strategy: WatermarkStrategy, epochs: list[tuple[dict[str, Seen], int, list[str], int]], more: Seen
) -> None:
    if strategy.learns:
        return
    few = many = Progress()
    for seen, now, there, complete in epochs:
        few = few.after(strategy, seen, now, there=there, complete=complete)
        many = many.after(strategy, seen | {"more": more}, now, there=there, complete=complete)
        # Where all others are idle there is no watermark but the one of the partition more.
        if few.holding:
            assert many.watermark <= few.watermark
        else:
            return


@examples(30)
@given(SEEDS, st.integers(50, 100), st.integers(1, 120))
def test_T3_of_records_that_lag_as_before_the_share_is_in_time(seed: int, share: int, mean: int) -> None:
    chance, strategy, at_most = random.Random(seed), ObservedLag(share, minutes(60)), duration(minutes(60))

    def lag() -> int:
        return min(at_most, int(chance.expovariate(1 / mean) * SECOND))

    progress, arrived, late, judged = Progress(), 10**15, 0, 0
    for epoch in range(24):
        lags: dict[int, int] = {}
        for _ in range(250):
            arrived += SECOND // 100
            late_by = lag()
            if epoch >= 8:
                judged += 1
                late += arrived - late_by < progress.watermark
            lags[lag_bucket(late_by)] = lags.get(lag_bucket(late_by), 0) + 1
        progress = progress.after(strategy, {"a": Seen(arrived, arrived, lags)}, epoch)
    assert late / judged <= (100 - share) / 100 + 0.03


@examples(100)
@given(st.integers(0, 10**17))
def test_T3_a_bucket_of_lags_is_narrow_and_holds_what_it_counts(lag: int) -> None:
    edge = lag_edge(lag_bucket(lag))
    assert lag <= edge + 1
    assert edge <= 1.1 * lag + 1000


def test_T3_lags_of_long_ago_count_less() -> None:
    strategy = ObservedLag(90, minutes(60))
    slow, quick = lag_bucket(600 * SECOND), lag_bucket(SECOND)
    lags = strategy.learned({}, [{slow: 900_000}])
    for _ in range(8):
        lags = strategy.learned(lags, [{quick: 800_000}])
    assert sum(lags.values()) <= 1_000_000
    trailed = timedelta(microseconds=10**15 - strategy.reached(0, 10**15, lags))
    assert trailed < seconds(2)
