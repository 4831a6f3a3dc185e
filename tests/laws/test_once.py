"""What is claimed counts once (Photon), however many regions join, in whatever order, one of them down for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from tailrace import Match, Once
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.once import Claims, Id
from tailrace.model.samples.visits import example
from tailrace.model.step.chain_fold import ChainRun, fold_chain
from tailrace.model.step.computation_state import KeysState, Record
from tests.support.cases.computations import kept
from tests.support.cases.searches import HASTY, LOGS, PHOTON, epochs, made, number_of


def joined(run: ChainRun) -> Counter[str]:
    return Counter(one.values["click_id"] for one in run.productions if one.values["outcome"] == "joined")


def adds_up(run: ChainRun, clicks: set[str]) -> None:
    """Every click was joined here, or elsewhere, or is in the ledger as late or unjoinable; each of them once."""
    told = [one.values["click_id"] for one in (*run.productions, *run.claimed)]
    told += [one.record["click_id"] for one in run.late if one.record["log"] == "clicks"]
    assert Counter(told) == Counter(clicks)
    assert all(one.values["outcome"] == "joined" for one in run.claimed)


@tried(max_examples=25)
@given(seed=st.integers(0, 10**6), regions=st.integers(1, 3))
def test_X6_every_click_is_joined_once_whatever_region_does_it_or_is_accounted_for(seed: int, regions: int) -> None:
    chance, records = Random(seed), made(seed % 5)
    clicks = {one["id"] for one in records if one["log"] == "clicks"}
    registry: dict[Id, str] = {}
    runs = [[ChainRun(KeysState(), claims=Claims(registry, f"region {number}"))] for number in range(regions)]
    left = [epochs(records, chance) for _ in runs]
    alone = [fold_chain(HASTY, one)[-1] for one in left]
    dead = chance.randrange(regions)
    while any(left):
        # One is down until the others are done, but for what it did at first.
        others = any(one for number, one in enumerate(left) if number != dead)
        waits = dead if others and left[dead] and number_of(left[dead][0]) >= 2 else None
        up = [number for number, one in enumerate(left) if one and number != waits]
        number = chance.choice(up)
        fold_chain(HASTY, [left[number].pop(0)], runs[number])
    told = sum((joined(one) for (one,) in runs), Counter[str]())
    # Whatever one of them would have joined by itself is joined, and nothing twice.
    assert told == Counter(set().union(*(joined(one) for one in alone)))
    for (one,), by_itself in zip(runs, alone, strict=True):
        adds_up(one, clicks)
        assert not kept(one)
        # What the others claim changes nothing but what counts.
        assert joined(by_itself) == joined(one) + Counter(each.values["click_id"] for each in one.claimed)


@tried(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_L1_alone_it_is_the_plain_join_of_what_came_in_time(seed: int) -> None:
    records = made(seed % 7)
    (run,) = fold_chain(PHOTON, epochs(records, Random(seed)))
    late = {one.record["click_id"] or one.record["query_id"] for one in run.late}
    in_time = [one for one in records if one["id"] not in late]
    asked = {one["query_id"]: one["term"] for one in in_time if one["log"] == "searches"}
    plain = {
        (one["click_id"], one["ad"], asked.get(one["query_id"]), instant(one["at"]))
        for one in in_time
        if one["log"] == "clicks"
    }
    # Within the logs' few minutes no click waits too long.
    found = {(*(one.values[name] for name in ("click_id", "ad", "term")), one.at) for one in run.productions}
    assert found == plain
    assert {one.values["outcome"] for one in run.productions if one.values["term"] is None} <= {"unjoinable"}
    assert not run.claimed


def test_a_click_waits_for_its_query_and_no_longer_than_it_should() -> None:
    at = moment(1_700_000_000_000_000)
    click = {"click_id": "c", "query_id": "q", "ad": "tea", "at": at}
    query = {"query_id": "q", "term": "boots", "at": at}
    start = instant(at)

    def told(*cuts: tuple[list[Mapping[str, Any]], int]) -> list[tuple[int, str]]:
        clocks = [Clock(epoch, start + after * 60_000_000, 0) for epoch, (_, after) in enumerate(cuts)]
        found = [
            {log: ([one for one in bundle if ("ad" in one) == (log == "clicks")], clock) for log in LOGS}
            for (bundle, _), clock in zip(cuts, clocks, strict=True)
        ]
        return [(one.epoch, one.values["outcome"]) for one in fold_chain(PHOTON, found)[-1].productions]

    assert told(([click], 0), ([], 59), ([query], 59)) == [(2, "joined")]
    assert told(([click], 0), ([], 60), ([query], 60)) == [(1, "unjoinable")]
    assert told(([query], 0), ([click], 30)) == [(1, "joined")]
    assert told(([click], 0), ([], 59)) == []


def test_those_that_it_is_not_about_count_each() -> None:
    twice = [Id("7", 5), Id("7", 5)]
    claims = Claims()
    assert [claims.claim(one) for one in twice] == [True, False]
    once = Once("joined", by="click", keep=Match("n", ">", 3))
    types = {"click": "bigint", "n": "bigint"}
    given: list[Record] = [{"click": 7, "n": 4}, {"click": 7, "n": 3}, {"click": None, "n": 4}, {"click": 7, "n": None}]
    assert [once.id_of(one, 5, types) for one in given] == [Id("7", 5), None, None, None]


@pytest.mark.parametrize(
    ("once", "path", "remedy"),
    [
        (Once("Joined!", by="clicks"), "once.registry", "lower-case"),
        (Once("joined", by="click"), "once.by", "clicks"),
        (Once("joined", by="clicks", keep=Match("nothing", "==", 1)), "once.keep", "nothing"),
        ("joined", "once", "Once("),
    ],
)
def test_what_makes_no_sense_to_claim_is_refused_with_the_remedy(once: Any, path: str, remedy: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        replace(example(), once=once)
    (fault,) = [one for one in refused.value.faults if one.path.startswith(path)]
    assert remedy in str(fault)


def test_weak_productions_cannot_be_claimed() -> None:
    with pytest.raises(DefinitionError, match="strong productions"):
        replace(example(), productions="weak", once=Once("joined", by="clicks"))


def test_a_registry_is_part_of_what_a_computation_means() -> None:
    plain, claims, other = example(), *(replace(example(), once=Once(name, by="clicks")) for name in ("a", "b"))
    assert len({plain.fingerprint, claims.fingerprint, other.fingerprint}) == 3
