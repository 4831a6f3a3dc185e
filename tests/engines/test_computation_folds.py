"""Folds of computations in this process, where no Spark is: what they commit, and what another finds there (X2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from tailrace import Computation, Context, RecordError, Timer
from tailrace.engines.claims import Claiming
from tailrace.lake.change.registry import Registry
from tailrace.lake.commit.epoch_properties import ENGINE
from tailrace.lake.commit.lease import Lease
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.definition.computation import ComputationError
from tailrace.model.definition.once import Claims, Id
from tailrace.model.step.chain_fold import ChainRun, fold_chain
from tailrace.model.step.computation_state import KeysState
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.cases.clicks import CLICKS, START, VISITS
from tests.support.cases.groups import LINKS, Groups, by_hand
from tests.support.cases.searches import HASTY, Epochs, epochs, made, number_of
from tests.support.engines.computation_folds import SECOND, Folded, clicks


def test_X2_a_restart_at_every_epoch_leaves_the_ledger_of_the_reference(settings: Settings) -> None:
    one, landed = Folded(settings, VISITS), []
    for epoch in range(6):
        clock = Clock(epoch, instant(START) + 80 * (epoch + 1) * SECOND, epoch)
        landed.append(([{**row, "_epoch": epoch, "_offset": n} for n, row in enumerate(clicks(epoch))], clock))
        one.epoch(clicks(epoch), clock)
        if epoch % 2:
            one.fold.close()
            one.anew()
    run = fold_chain(VISITS, landed)[-1]
    assert run.late
    told = Counter(
        (row["who"], row["epoch"], row["clicks"], instant(row["event_time"])) for row in one.rows("production")
    )
    assert told == Counter((*p.key, p.epoch, p.values["clicks"], p.at) for p in run.productions)
    late = Counter((row["source_epoch"], row["source_offset"], row["behind"]) for row in one.rows("late"))
    assert late == Counter((lost.epoch, lost.record["_offset"], lost.behind) for lost in run.late)
    assert one.lake.head("visits__ledger").properties[ENGINE].startswith("duckdb")
    one.clean()


def test_keys_at_rest_are_not_written_again(settings: Settings) -> None:
    one, before = Folded(settings, VISITS), instant(START)
    rows = [{"id": n, "who": f"key {n}", "at": START, "seen": START} for n in range(50)]
    one.epoch(rows, Clock(0, before, 0))
    one.epoch([{**rows[7], "id": 50}], Clock(1, before + SECOND, 1))
    one.epoch([], Clock(2, before + SECOND, 2))
    assert Counter(row["epoch"] for row in one.rows("partial")) == {0: 50, 1: 1}
    # A timer that is due is found without a record: all visits are over.
    one.epoch([], Clock(3, END_OF_TIME, 3))
    assert {row["gone"] for row in one.rows("partial") if row["epoch"] == 3} == {True}
    assert len(one.rows("production")) == 50
    one.clean()


def test_X2_a_loop_comes_to_rest_over_restarts(settings: Settings) -> None:
    links = [("a", "b"), ("c", "b"), ("d", "c"), ("e", "f"), ("f", "g")]
    one = Folded(settings, Groups(name="groups", log=LINKS, key="one"))
    one.epoch([{"one": a, "other": b, "at": START} for a, b in links], Clock(0, instant(START), 0))
    epoch = 0
    while one.fold.in_flight:
        one.clean()
        one.fold.close()
        one.anew()
        epoch += 1
        one.epoch([], Clock(epoch, instant(START), epoch))
    latest = {row["one"]: row["state"]["group"] for row in sorted(one.rows("partial"), key=lambda row: row["epoch"])}
    assert latest == by_hand(links)
    assert epoch > 2
    one.clean()


class Brittle(Computation):
    """It rejects a record, fails at another, gives one what does not fit, and fails at the timer of a fourth."""

    state = {"total": "bigint"}
    produces = {"total": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.total = (context.state.total or 0) + 1
        match record["id"]:
            case 2:
                raise RecordError("two")
            case 3:
                raise KeyError("no such thing")
            case 4:
                context.state.total = 2**63
            case 6:
                context.set_timer("six", record["at"])
        context.produce({"total": context.state.total})

    def process_timer(self, context: Context, timer: Timer) -> None:
        raise KeyError("no such timer")


def test_X7_a_record_that_a_computation_cannot_take_is_rejected_and_its_key_goes_on(settings: Settings) -> None:
    one = Folded(settings, Brittle(name="brittle", log=CLICKS, key="who"))
    rows = [{"id": n, "who": "a", "at": START, "seen": START} for n in range(6)]
    one.epoch(rows[:4], Clock(0, instant(START), 0))
    one.epoch(rows[4:], Clock(1, instant(START), 1))
    reasons = ["two", "KeyError: 'no such thing'", f"brittle: state.total = {2**63}: expected bigint"]
    assert {row["reason"] for row in one.rows("rejected")} == set(reasons)
    assert sorted(row["total"] for row in one.rows("production")) == [1, 2, 3]
    found = audit(one.lake, one.computation)
    assert found.ok, [check for check in found.checks if not check.ok]


def test_X7_a_timer_that_a_computation_cannot_take_is_rejected_and_its_key_goes_on(settings: Settings) -> None:
    one = Folded(settings, Brittle(name="brittle", log=CLICKS, key="who"))
    rows = [{"id": n, "who": who, "at": START, "seen": START} for n, who in [(0, "a"), (6, "a"), (6, "b"), (7, "a")]]
    for epoch, row in enumerate(rows):
        one.epoch([row], Clock(epoch, instant(START), epoch))
        if epoch == 1:
            one.fold.close()
            one.anew()
    place = ("reason", "source_epoch", "source_partition", "source_offset")
    reason = "timer 'six': KeyError: 'no such timer'"
    assert sorted(
        (row["epoch"], row["who"], row["event_time"], *(row[name] for name in place)) for row in one.rows("rejected")
    ) == [(1, "a", START, reason, None, '["a"]', 0), (2, "b", START, reason, None, '["b"]', 0)]
    assert sorted((row["who"], row["total"]) for row in one.rows("production")) == [
        ("a", 1), ("a", 2), ("a", 3), ("b", 1),
    ]  # fmt: skip
    found = audit(one.lake, one.computation)
    assert found.ok, [check for check in found.checks if not check.ok]
    assert (found.counts["timers_fired"], found.counts["timers_failed"], found.counts["pending"]) == (2, 2, 0)
    one.clean()


def test_a_computation_whose_timer_is_to_stop_it_commits_nothing_of_the_epoch(settings: Settings) -> None:
    stops = settings.model_copy(update={"poison": "stop"})
    one = Folded(stops, Brittle(name="brittle", log=CLICKS, key="who"))
    rows = [{"id": n, "who": "a", "at": START, "seen": START} for n in (0, 1, 6)]
    one.epoch(rows[:2], Clock(0, instant(START), 0))
    said = r"process_timer raised KeyError: 'no such timer' \(key \('a',\), timer 'six' of 2.*TAILRACE_POISON=stop"
    with pytest.raises(ComputationError, match=said):
        one.epoch(rows[2:], Clock(1, instant(START), 1))
    one.anew()
    assert one.fold.epoch == 0
    assert [row["total"] for row in one.rows("production")] == [1, 2]


def regions(settings: Settings) -> tuple[Folded, Folded, Epochs, Epochs]:
    records = made(3)
    here, there = (Folded(settings.model_copy(update={"namespace": name}), HASTY) for name in ("eu", "us"))
    return here, there, epochs(records, Random(1)), epochs(records, Random(2))


def joined(one: Folded, kind: str = "production") -> Counter[str]:
    return Counter(row["click_id"] for row in one.rows(kind) if row["outcome"] == "joined")


@pytest.mark.slow
def test_X6_two_regions_claim_as_the_reference_does_and_one_that_died_in_between_counts_its_claims(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, left, others = regions(settings)
    registry: dict[Id, str] = {}
    runs = {one: [ChainRun(KeysState(), claims=Claims(registry, name))] for one, name in ((here, "eu"), (there, "us"))}
    chance, deaths = Random(4), 0
    while left or others:
        one, some = (here, left) if left and (chance.random() < 0.5 or not others) else (there, others)
        epoch = some.pop(0)
        fold_chain(HASTY, [epoch], runs[one])
        if chance.random() < 0.3:
            with monkeypatch.context() as patched:
                # What was claimed is published, the epoch is not.
                patched.setattr(Lease, "commit", dies)
                with pytest.raises(RuntimeError, match="it dies here"):
                    one.cut(epoch)
            one.anew()
            deaths += 1
        one.cut(epoch)
    assert deaths > 3
    for one in (here, there):
        (run,) = runs[one]
        assert joined(one) == Counter(p.values["click_id"] for p in run.productions if p.values["outcome"] == "joined")
        assert joined(one, "claimed") == Counter(p.values["click_id"] for p in run.claimed)
        one.clean()
    assert set((joined(here) + joined(there)).values()) == {1}
    assert min(sum(joined(one, kind).values()) for one in (here, there) for kind in ("production", "claimed")) > 0


@pytest.mark.slow
def test_X6_what_two_claim_at_the_same_time_counts_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, left, others = regions(settings)
    start, met = Registry.start, list[int]()

    def overtaken(registry: Registry) -> int | None:
        """The other has an epoch between the look at the registry and the claims."""
        found = start(registry)
        if registry is here.registry and others:
            there.cut(others.pop(0))
            met.append(registry.branch.base != registry.lake.head(registry.table).snapshot)
        return found

    monkeypatch.setattr(Registry, "start", overtaken)
    for epoch in left:
        here.cut(epoch)
    for epoch in others:
        there.cut(epoch)
    assert sum(met) > 3, "it was overtaken"
    assert set((joined(here) + joined(there)).values()) == {1}
    here.clean()
    there.clean()


def test_the_ledger_is_read_for_claims_only_after_a_restart(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, ledger = list[int](), Claiming._ledger

    def counted(self: Claiming, session: Any, wanted: Any) -> Any:
        read.append(1)
        return ledger(self, session, wanted)

    monkeypatch.setattr(Claiming, "_ledger", counted)
    one = Folded(settings, HASTY)
    cuts = epochs(made(3), Random(1))
    whole = [
        {log: (records, Clock(place, 0, place)) for log, (records, _) in cut.items()} for place, cut in enumerate(cuts)
    ]
    for epoch in whole[:-2]:
        one.cut(epoch)
    before, clicks = joined(one), [*whole[-3]["clicks"][0], *whole[-4]["clicks"][0]]
    again = [{**record, "_epoch": number_of(whole[-2]), "_offset": place} for place, record in enumerate(clicks)]
    assert set(before) & {record["click_id"] for record in again}, "a click comes again, which is joined already"
    clock = whole[-2]["clicks"][1]
    one.cut({**whole[-2], "clicks": (again, clock)})
    assert (read, set(joined(one).values())) == ([], {1})
    one.fold.close()
    one.anew()
    clock = whole[-1]["clicks"][1]
    one.cut({**whole[-1], "clicks": ([{**record, "_epoch": clock.epoch} for record in again], clock)})
    assert (read, set(joined(one).values())) == ([1], {1})


def dies(lease: Lease, *given: object) -> bool:
    raise RuntimeError("it dies here")
