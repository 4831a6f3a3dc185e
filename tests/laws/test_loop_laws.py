"""The laws of a computation that feeds records back to itself: every epoch is a cut with what is in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import EPOCH, instant, seconds
from tailrace.model.step.chain_fold import fold_chain
from tailrace.model.step.computation_state import KeysState
from tailrace.model.step.computation_step import step
from tests.support.cases.computations import Ring, machines
from tests.support.cases.groups import LINKS, Groups, by_hand
from tests.support.cases.strategies import epochs, examples


@examples(100)
@given(data=st.data())
def test_X6_what_is_fed_back_comes_round_once_in_the_next_epoch(data: st.DataObject) -> None:
    machine = data.draw(machines(loops=True))
    assert isinstance(machine, Ring)
    made = data.draw(epochs(machine))
    state, round_ = KeysState(), 0
    for bundle, clock in made:
        before = state
        state, productions, late, rejected, work = step(machine, state, bundle, clock)
        assert sum(one.returned for one in work.values()) == len(before.in_flight)
        refused = sum(one.returned for one in rejected)
        said = [one for one in productions if one.values["said"] == "came round"]
        assert len(said) + refused == len(before.in_flight)
        assert all(one.epoch == clock.epoch for one in state.in_flight)
        places = Counter((one.out_of, one.place) for one in state.in_flight)
        assert not places or max(places.values()) == 1
        taken = sum(one.taken for one in work.values())
        assert taken + len(late) + len(rejected) - refused == len(bundle)
        round_ += len(before.in_flight)
    event(f"{min(round_, 9)} came round")


@examples(100)
@given(data=st.data())
def test_X2_from_a_cut_it_goes_on_as_if_nothing_had_been(data: st.DataObject) -> None:
    """The keys alone are no cut: without what is in flight another thing comes of it."""
    machine = data.draw(machines(loops=True))
    made = data.draw(epochs(machine))
    cut = data.draw(st.integers(0, len(made)))
    whole = fold_chain(machine, made)
    (first,) = fold_chain(machine, made[:cut])
    assert fold_chain(machine, made[cut:], [first]) == whole


Pairs = Sequence[tuple[str, str]]


def drained(groups: Groups, epochs: Sequence[Pairs]) -> dict[str, str]:
    """The group of each name after so many epochs, and so many more as there is something in flight."""
    state, number, left = KeysState(), 0, list(epochs)
    while left or state.in_flight:
        pairs = left.pop(0) if left else ()
        records: list[Mapping[str, Any]] = [
            {"one": one, "other": other, "at": EPOCH + seconds(place)} for place, (one, other) in enumerate(pairs)
        ]
        state, *_ = step(groups, state, records, Clock(number, instant(EPOCH), number))
        number += 1
    return {str(key[0]): held.fields["group"] for key, held in state.keys.items()}


@examples(200)
@given(data=st.data())
def test_L1_no_order_and_no_cut_changes_where_a_loop_comes_to_rest(data: st.DataObject) -> None:
    names = st.sampled_from("abcdefghij")
    links = data.draw(st.lists(st.tuples(names, names), max_size=14))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(links)), max_size=4)))
    order = data.draw(st.permutations(links))
    epochs_ = [order[start:end] for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    groups = Groups(name="groups", log=LINKS, key="one")
    assert drained(groups, epochs_) == by_hand(links)
    assert drained(groups, [links]) == by_hand(links)
