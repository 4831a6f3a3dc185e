"""Custom triggers: what can be told of them before they run is told, with the place; sound ones run."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import (
    AfterCount,
    AfterWatermark,
    AllOf,
    AnyOf,
    AtWatermark,
    Count,
    DefinitionError,
    Fixed,
    Pipeline,
    Repeat,
    minutes,
)
from tailrace.model.samples import examples
from tailrace.model.step.reference import fold
from tailrace.model.triggers.trigger import Moment, Ready, Trigger


class Own(Trigger):
    """What the ones below change a part of: it fires when something is fresh."""

    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        return Ready(o.at_least(moment.fresh, o.literal(1, "bigint")), o.literal(False, "boolean"))


class Never(Own):
    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        return Ready(o.every(moment.fresh > 0, moment.fresh < 0), False)


class Restless(Own):
    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        passed = o.at_least(moment.watermark, moment.end)
        return Ready(passed, passed)


class Forgetful(Own):
    def slots(self) -> dict[str, bool | int]:
        return {"count": 0}

    def fired(self, o: Any, slots: Any, moment: Moment) -> dict[str, Any]:
        return {"counts": 1}


class DoneAndReady(Own):
    finishes = True
    finishes_only_on_time = False

    def slots(self) -> dict[str, bool | int]:
        return {"done": False}

    def fired(self, o: Any, slots: Any, moment: Moment) -> dict[str, Any]:
        return {"done": True}

    def done(self, o: Any, slots: Any) -> Any:
        return slots["done"]


class SaysItGoesOn(DoneAndReady):
    finishes = False

    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        return Ready(o.every(o.no(slots["done"]), super().ready(o, slots, moment).fires), False)


class Broken(Own):
    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        return Ready(moment.measures["bytes"] > 5, False)


def refusal(trigger: Trigger) -> str:
    with pytest.raises(DefinitionError) as refused:
        Pipeline(name="own", log=examples.SCORES, what={"n": Count()}, where=Fixed(minutes(1)), when=trigger)
    return str(refused.value)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (Never(), "expected a trigger that fires at some time; asked at all moments that matter, it never did"),
        (Restless(), "expected a trigger that waits for records: it fires again and again with nothing new"),
        (Forgetful(), "expected the slots that it starts with, and no other (count); give them all in `fired`"),
        (DoneAndReady(), "expected a trigger that is done to be ready no more; let `ready` look at what `done` does"),
        (SaysItGoesOn(), "expected a trigger that is never done, as `finishes` says; let `finishes` give True"),
        (Broken(), "asked, it failed with KeyError: 'bytes'"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Trigger) else "",
)
def test_what_is_wrong_with_a_trigger_of_ones_own_is_told(trigger: Trigger, expected: str) -> None:
    assert expected in refusal(trigger)


def test_the_sub_expression_at_fault_is_named() -> None:
    assert "when.part = " in refusal(Repeat(Never()))
    assert "when[0].part = " in refusal(AfterWatermark(early=Never(), late=AfterCount(1)))


def test_M3_a_trigger_of_ones_own_is_asked_whether_it_needs_records_before_it_is_repeated() -> None:
    expected = "expected a trigger that waits for records; it would be on time again and again with nothing new"
    for restless in (Punctual(), AllOf(AtWatermark(), EagerOnce()), AnyOf(AtWatermark(), Eager())):
        assert expected in refusal(Repeat(restless))
    for sound in (Repeat(AllOf(AtWatermark(), Eager(), AfterCount(1))), Repeat(EagerOnce()), Punctual()):
        Pipeline(name="own", log=examples.SCORES, what={"n": Count()}, where=Fixed(minutes(1)), when=sound)


class Eager(Own):
    """Is ready whenever it is asked: it fires what is fresh, for a pane with nothing new comes on time alone."""

    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        return Ready(o.literal(True, "boolean"), o.literal(False, "boolean"))


class EagerOnce(DoneAndReady):
    """Is ready whenever it is asked, until it has fired."""

    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        return Ready(o.no(slots["done"]), o.literal(False, "boolean"))


class Punctual(SaysItGoesOn):
    """Fires once, as the watermark passes."""

    finishes = True
    finishes_only_on_time = True

    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        passed = o.every(o.no(slots["done"]), o.at_least(moment.watermark, moment.end))
        return Ready(passed, passed)


def test_a_trigger_that_is_always_ready_fires_what_is_fresh_and_is_not_refused() -> None:
    what, made = {"n": Count()}, examples.element_at_a_time()
    eager = Pipeline(name="eager", log=examples.SCORES, what=what, where=Fixed(minutes(2)), when=Eager())
    run = fold(eager, made)
    assert len(run.panes) == sum(len(records) for records, _ in made) - len(run.late) > 0
