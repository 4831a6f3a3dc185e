"""Computations that make no sense are refused with every fault; what their code may not do fails, and says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tailrace import Computation, Context, Count, DefinitionError, Each, Field, Fixed, Pipeline, hours, minutes
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, EPOCH, instant, moment
from tailrace.model.definition.computation import ComputationError, NotKeptError
from tailrace.model.samples.visits import clicks, example
from tailrace.model.step.computation_state import KeysState
from tailrace.model.step.computation_step import step, taken
from tests.support.cases.clicks import CLICKS, QUICK, VISITS


class Wrong(Computation):
    state = {"Big": "bigint", "count": Field("number"), "low": Field("int", "x"), "clear": "int"}
    produces = {"epoch": "bigint", "who": "string", "list": "list<int>"}


def test_every_fault_of_a_computation_is_named_at_once() -> None:
    some: Any = "some"
    with pytest.raises(DefinitionError) as refused:
        Wrong(name="wrong", log=CLICKS, key=("who", "whom"), ordered=True, allowed_lateness=hours(1), productions=some)
    paths = [fault.path for fault in refused.value.faults]
    assert paths == [
        "process_record",
        "key[1]",
        "state['Big']",
        "state['count']",
        "state['low'].default",
        "state['clear']",
        "produces['epoch']",
        "produces['who']",
        "produces['list']",
        "allowed_lateness",
        "productions",
    ]


class Around(Computation):
    feedback = {"who": "string", "event_time": "timestamp", "left": "list"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.feed_back("b", {"left": 1})

    def process_feedback(self, context: Context, record: Mapping[str, Any]) -> None: ...


def test_every_fault_of_a_loop_is_named_at_once() -> None:
    with pytest.raises(DefinitionError) as refused:
        Around(name="around", log=CLICKS, key="who", ordered=True)
    paths = [fault.path for fault in refused.value.faults]
    assert paths == ["feedback['who']", "feedback['event_time']", "feedback['left']", "ordered"]

    class Open(Computation):
        feedback = {"left": "int"}

        def process_record(self, context: Context, record: Mapping[str, Any]) -> None: ...

    with pytest.raises(DefinitionError, match=r"process_feedback.*expected a method of the class that takes"):
        Open(name="open", log=CLICKS, key="who")


def test_that_records_go_round_is_in_the_fingerprint() -> None:
    class Plain(Computation):
        def process_record(self, context: Context, record: Mapping[str, Any]) -> None: ...

    class Looped(Plain):
        def process_feedback(self, context: Context, record: Mapping[str, Any]) -> None: ...

    class More(Looped):
        feedback = {"left": "int"}

    for kind in (Plain, Looped, More):
        kind.__qualname__ = "Plain"
    made = [kind(name="one", log=CLICKS, key="who") for kind in (Plain, Looped, More)]
    assert len({one.fingerprint for one in made}) == 3
    assert [one.loops for one in made] == [False, True, True]


def test_a_computation_does_not_read_what_is_taken_back() -> None:
    counts = Pipeline(name="counts", log=CLICKS, what={"n": Count()}, where=Fixed(minutes(1)))
    with pytest.raises(DefinitionError, match=r"the panes of counts.*expected a log of which nothing is taken back"):
        example(log=counts.panes, key=())


def test_what_needs_productions_that_are_kept_is_refused_over_weak_ones() -> None:
    what, where = {"n": Count()}, Fixed(minutes(1))
    each = Each(lambda record: {"more": 1}, {"more": "int"})
    with pytest.raises(DefinitionError, match=r"each\[0\].*expected records that are kept") as refused:
        Pipeline(name="counts", log=QUICK.produced, each=each, what=what, where=where, finishing="close")
    assert {fault.path for fault in refused.value.faults} == {"each[0]", "finishing"}
    assert Pipeline(name="counts", log=VISITS.produced, each=each, what=what, where=where).sources == (CLICKS,)
    from tailrace.engines.log_records import rows_of_log
    from tests.support.engines.sessions import in_process

    with pytest.raises(NotKeptError, match="what quick produces is not kept"):
        rows_of_log(in_process(), QUICK.produced, 0)


def test_what_a_computation_means_is_in_its_fingerprint() -> None:
    other = example(gap=minutes(1)), example(ordered=True), example(productions="weak"), example(key=())
    assert len({one.fingerprint for one in (example(), *other)}) == 5
    assert example(name="another").fingerprint == example().fingerprint
    pipelines = [
        Pipeline(name="counts", log=one.produced, what={"n": Count()}, where=Fixed(minutes(1))) for one in other[:3]
    ]
    assert len({one.fingerprint for one in pipelines}) == 3


def doing(hook: Callable[[Context, Mapping[str, Any]], object]) -> Computation:
    class Doing(Computation):
        state = {"count": Field("int", 0), "list": "array<int>"}
        produces = {"n": "int"}
        feedback = {"left": "int"}

        def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
            hook(context, record)

        def process_feedback(self, context: Context, record: Mapping[str, Any]) -> None:
            hook(context, record)

        def process_timer(self, context: Context, timer: object) -> None:
            context.set_timer("again", EPOCH)

    return Doing(name="doing", log=example().log, key="who")


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (lambda c, r: c.produce({"m": 1}), "produced m: expected the columns n"),
        (lambda c, r: c.produce({"n": "x"}), "produced n = 'x': expected int"),
        (lambda c, r: c.produce(event_time=EPOCH), "expected no earlier than 1970-01-01T00:00:05Z"),
        (
            lambda c, r: c.set_timer("t", r["at"], holds=EPOCH),
            "timer 't' holds 1970-01-01T00:00:00Z: expected no earlier",
        ),
        (lambda c, r: setattr(c.state, "count", 2**40), "state.count = 1099511627776: expected int"),
        (lambda c, r: c.state.total, r"state.total: expected a declared field \(count, list\)"),
        (
            lambda c, r: c.state.__setattr__("list", [1]) or c.state.list.append("x"),
            r"state.list = \[1, 'x'\]: expected",
        ),
        (lambda c, r: 1 / 0, "^ZeroDivisionError: division by zero$"),
        (lambda c, r: c.set_timer("", EPOCH), "expected a name"),
        (lambda c, r: c.feed_back("a", {"n": 1}), "fed back n: expected the columns left; declare it in feedback"),
        (lambda c, r: c.feed_back("a", {"left": "x"}), "fed back left = 'x': expected int"),
        (lambda c, r: c.feed_back(5), "fed back to who = 5: expected string"),
        (lambda c, r: c.feed_back(("a", "b")), r"fed back to key \('a', 'b'\): expected a value for each of who"),
        (lambda c, r: c.feed_back("a", event_time=EPOCH), "fed back a record of 1970.*expected no earlier than"),
    ],
)
def test_X7_a_record_for_which_the_code_does_what_it_may_not_is_rejected_with_what_is_expected(
    hook: Any, said: str
) -> None:
    def once(context: Context, record: Mapping[str, Any]) -> None:
        context.state.count += 1
        if record["at"] == moment(5_000_000):
            hook(context, record)

    outcome = step(doing(once), KeysState(), clicks("a 5, a 6"), Clock(0, 0, 0))
    [bad] = outcome.rejected
    assert re.search(said, bad.reason), bad.reason
    assert bad.record["at"] == moment(5_000_000)
    # What it did before it failed is undone, and the next record of its key goes on.
    [held] = outcome.state.keys.values()
    assert held.fields["count"] == 1
    assert not held.timers


def test_what_is_added_to_a_list_that_was_there_is_checked_too() -> None:
    def hook(context: Context, record: Mapping[str, Any]) -> None:
        if context.state.list:
            context.state.list.append("x")
        else:
            context.state.list = [1]

    outcome = step(doing(hook), KeysState(), clicks("a 5, a 6"), Clock(0, 0, 0))
    [bad] = outcome.rejected
    assert "state.list = [1, 'x']: expected array<int>" in bad.reason
    assert [held.fields["list"] for held in outcome.state.keys.values()] == [[1]]


def test_at_the_end_of_time_every_record_is_too_late_whatever_the_lateness() -> None:
    patient = replace(example(), allowed_lateness=hours(1))
    assert [patient.reached(at) for at in (END_OF_TIME, END_OF_TIME - 1)] == [
        END_OF_TIME,
        END_OF_TIME - 1 - 3600 * 10**6,
    ]


def test_a_timer_that_sets_itself_again_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.model.step.one_key.MOST", 100)
    endless = doing(lambda context, record: context.set_timer("again", EPOCH))
    with pytest.raises(ComputationError, match=r"100 timers of key .* were due in epoch 0"):
        step(endless, KeysState(), clicks("a 5"), Clock(0, 10**7, 0))


def test_a_computation_has_no_backfill_and_says_so(tmp_path: Any) -> None:
    from typer.testing import CliRunner

    from tailrace.cli.main import app

    done = CliRunner().invoke(app, ["backfill", "pipelines/silences.py", "--from", "2013-01-01", "--to", "2013-01-02"])
    assert done.exit_code == 2
    assert "silences is a computation, which has no windows" in done.stderr
    done = CliRunner().invoke(app, ["late", "pipelines/silences.py"])
    assert done.exit_code == 2
    assert "expected a Pipeline" in done.stderr


@pytest.mark.parametrize("ordered", [True, False])
def test_a_step_takes_rows_as_it_takes_records(ordered: bool) -> None:
    visits, before, outcomes = example(ordered=ordered), Clock(0, 20 * 10**6, 0), []
    records = [{**one, "_epoch": 1, "_source": "f", "_offset": n} for n, one in enumerate(clicks("a 31, a 25, b 1"))]
    rows = [((one["who"],), instant(one["at"]), tuple(one.values())) for one in records]
    for outcome in (
        step(visits, KeysState(clock=before), records, Clock(1, 27 * 10**6, 1)),
        taken(visits, KeysState(clock=before), rows, Clock(1, 27 * 10**6, 1)),
    ):
        after = step(visits, outcome.state, [], Clock(2, 10**9, 2))
        outcomes.append((outcome, after))
    assert outcomes[0] == outcomes[1]
    assert [one.key for one in outcomes[0][0].late] == [("b",)]
