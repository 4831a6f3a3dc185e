"""The laws of computations over random records and clocks: cuts, timers, watermarks, rejected records, replay."""

from __future__ import annotations

from collections import Counter

from hypothesis import event, given
from hypothesis import strategies as st

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.step.chain_fold import ChainRun, fold_chain
from tailrace.model.step.computation_state import KeysState
from tailrace.model.step.computation_step import onward, step
from tailrace.model.step.step import Record
from tests.support.cases import strategies
from tests.support.cases.computations import Desk, Machine, by_key, kept, machines, readers, told, without_late
from tests.support.cases.strategies import examples

Epochs = list[tuple[list[Record], Clock]]


@st.composite
def epochs(draw: st.DrawFn, machine: Machine, *, ends: bool | None = None) -> Epochs:
    """Random epochs of records that say where in their source they are: those of one instant have an order."""
    made = draw(strategies.epochs(machine, ends=ends))
    return [([{**record, "_offset": record["id"]} for record in bundle], clock) for bundle, clock in made]


def folded(machine: Machine, made: Epochs) -> ChainRun:
    return fold_chain(machine, made)[-1]


@examples(80, deeper=150)
@given(data=st.data())
def test_X2_no_cut_and_no_order_of_arrival_changes_what_an_ordered_computation_does(data: st.DataObject) -> None:
    machine = data.draw(machines(ordered=True, wall=False))
    made = data.draw(epochs(machine, ends=True))
    run = folded(machine, made)
    records = without_late(made, run)
    order = data.draw(st.permutations(records))
    whole = folded(machine, [(order, Clock(0, END_OF_TIME, 0))])
    assert by_key(run) == by_key(whole)
    assert kept(run) == kept(whole)
    event(f"{min(len(run.productions), 9)} productions, {len(run.late)} late")


@examples(60, deeper=100)
@given(data=st.data())
def test_records_and_timers_of_a_key_take_turns_by_event_time(data: st.DataObject) -> None:
    machine = data.draw(machines(ordered=True, wall=False))
    made = data.draw(epochs(machine, ends=True))
    run = folded(machine, made)
    keys: dict[object, list[Record]] = {}
    for record in without_late(made, run):
        keys.setdefault(tuple(record.get(name) for name in machine.key), []).append(record)
    by_hand = {key: Desk().run(records) for key, records in keys.items()}
    # The order of what each key said, too; timers that were due at a time come before its records.
    given_ = by_key(run)
    plain = {
        key: [(at, said, total, due and instant(due)) for at, said, total, due, _ in said_]
        for key, said_ in given_.items()
    }
    assert plain == {key: said for key, said in by_hand.items() if said}


@examples(80, deeper=150)
@given(data=st.data())
def test_timers_fire_once_in_order_and_not_before_their_time(data: st.DataObject) -> None:
    machine = data.draw(machines())
    made = data.draw(epochs(machine))
    state, done = KeysState(), Counter[str]()
    for bundle, clock in made:
        before, fired = state, list[tuple[object, str, int]]()
        state, productions, _, _, work = step(machine, state, bundle, clock)
        for one in productions:
            if one.values["due"] is not None:
                fired.append((one.key, str(one.values["said"]), instant(one.values["due"])))
        for did in work.values():
            done.update(set=did.set, fired=did.fired, dropped=did.dropped)
        assert len(fired) == sum(did.fired for did in work.values())
        for _, name, due in fired:
            assert due <= (clock.processing_time if name == "wall" else clock.watermark)
        pending = {(key, timer) for key, held in state.keys.items() for timer in held.timers}
        for _, timer in pending:
            assert timer.time > (clock.processing_time if timer.name == "wall" else clock.watermark)
        # What was pending fires in order; one that is set in the meantime comes in when it is set.
        for key, held in before.keys.items():
            old = {(timer.name, timer.time) for timer in held.timers}
            own = [(due, name) for one, name, due in fired if one == key and (name, due) in old and name != "wall"]
            assert [due for due, _ in own] == sorted(due for due, _ in own)
        left = sum(len(held.timers) for held in state.keys.values())
        assert done["set"] == done["fired"] + done["dropped"] + left
    event(f"{min(done['fired'], 9)} fired")


@examples(80, deeper=150)
@given(data=st.data())
def test_T3_nothing_that_is_produced_is_late_for_those_who_read_it(data: st.DataObject) -> None:
    machine = data.draw(machines())
    made = data.draw(epochs(machine))
    state, reached = KeysState(), BEGINNING
    for bundle, clock in made:
        state, productions, *_ = step(machine, state, bundle, clock)
        assert all(one.at >= reached for one in productions)
        assert onward(machine, state) >= reached
        reached = onward(machine, state)
    for reader in readers(machine):
        _, second = fold_chain(reader, made)
        assert not second.late
        assert second.state.clock is not None
        assert second.state.clock.watermark == reached


@examples(60, deeper=100)
@given(data=st.data())
def test_L3_folded_again_it_says_the_same_from_any_epoch_on(data: st.DataObject) -> None:
    machine = data.draw(machines())
    made = data.draw(epochs(machine))
    cut = data.draw(st.integers(0, len(made)))
    whole = fold_chain(machine, made)
    assert fold_chain(machine, made[cut:], fold_chain(machine, made[:cut])) == whole


@examples(60, deeper=100)
@given(data=st.data())
def test_X6_a_rejected_record_leaves_no_trace_but_in_rejected(data: st.DataObject) -> None:
    machine = data.draw(machines(loops=False))
    made = data.draw(epochs(machine, ends=True))
    run = folded(machine, made)
    good = folded(machine, [([one for one in bundle if one["label"] != "Z"], clock) for bundle, clock in made])
    # Keys take no turns: which of two comes first says nothing, and a rejected record may change it.
    assert Counter(map(repr, run.productions)) == Counter(map(repr, good.productions))
    assert by_key(run) == by_key(good)
    assert run.state == good.state
    late = {one.record["id"] for one in run.late}
    bad = [one["id"] for bundle, _ in made for one in bundle if one["label"] == "Z" and one["id"] not in late]
    assert sorted(one.record["id"] for one in run.rejected) == sorted(bad)
    taken = sum(one.taken for one in run.work)
    assert taken + len(run.late) + len(run.rejected) == sum(len(bundle) for bundle, _ in made)


@examples(60, deeper=100)
@given(data=st.data())
def test_without_timers_no_cut_of_records_that_come_in_order_changes_anything(data: st.DataObject) -> None:
    machine = data.draw(machines(ordered=False, quiet=True))
    made = data.draw(epochs(machine))
    records = sorted((record for bundle, _ in made for record in bundle), key=lambda one: (one["at"], one["id"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=5)))
    parts = [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    # The watermark stays behind: which records are late is a matter of the cut.
    run = folded(machine, [(part, Clock(place, BEGINNING, place)) for place, part in enumerate(parts)])
    whole = folded(machine, [(records, Clock(0, BEGINNING, 0))])
    assert by_key(run) == by_key(whole)
    assert told(run.productions) == told(whole.productions)
    assert kept(run) == kept(whole)
