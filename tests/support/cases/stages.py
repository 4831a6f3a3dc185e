"""Random definitions of several stages, and the laws that they are held to (L1 to L3, T3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from hypothesis import strategies as st

from tailrace.engines.batch.batch_answers import Answering
from tailrace.model.base.conditions import Match, Missing
from tailrace.model.base.expressions import Col, If, Value
from tailrace.model.base.time import END_OF_TIME, seconds, text
from tailrace.model.base.types import is_exact_number, is_plain
from tailrace.model.combiners.basic import AnyTrue, AnyValue, Combiner, Count, Max, Mean, Min, Sum
from tailrace.model.combiners.lists import Collect, Distinct, Highest, TopK
from tailrace.model.combiners.sketches import ApproxDistinct
from tailrace.model.combiners.variance import Variance
from tailrace.model.definition.packed_columns import Pack, Unpack
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive, ElementWise
from tailrace.model.step.reference import ReferenceRun, fold_stages
from tailrace.model.step.step import Record, WindowsState
from tailrace.model.triggers.combinators import AfterWatermark, Repeat
from tailrace.model.triggers.trigger import AfterCount, AfterDelay, Every
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import EARLIEST, END_OF_WINDOW, LATEST, Accumulation, Pane, answers
from tailrace.model.windows.windows import Fixed, Global, Sliding
from tailrace.sql.terms import Query, Relation
from tests.support.cases.strategies import pipelines
from tests.support.checks import laws
from tests.support.checks.batch_answers import batch
from tests.support.checks.laws import Broken, Epochs, Place


def computed(by: Answering, log: Relation) -> Query:
    """The answers of a log's records, stage by stage, with no windows of records: as a backfill asks for them."""
    return by.brought(log if by.earlier is None else by.changed(computed(by.earlier, log)))


@st.composite
def chains(draw: st.DrawFn, *, kept: bool = False) -> Pipeline:
    """A random definition of two or three stages; with `kept`, some of its combiners cannot take a record back."""
    if draw(st.integers(0, 3)) == 0:
        return draw(unpackings(kept=kept))
    first = draw(_first())
    if first.where.merges or first.where.longest is not None:
        first = replace(first, timestamp=draw(st.sampled_from([END_OF_WINDOW, END_OF_WINDOW, EARLIEST, LATEST])))
    return draw(_stages(first, kept))


@st.composite
def unpackings(draw: st.DrawFn, *, kept: bool = False) -> Pipeline:
    """A random definition whose first stage gathers two sides, and whose second one unpacks one of them, or both."""
    first = replace(draw(_first()), each=tuple(SIDES.values()), what=gathering())
    outer = draw(st.booleans())
    if draw(st.integers(0, 2)) == 0:
        if draw(st.booleans()):
            highest = Highest("left", by=draw(st.sampled_from(["left_value", "left_at"])))
            first = replace(first, what=gathering() | {"lefts": highest})
        place = draw(st.sampled_from([None, "place_in_list"]))
        return draw(_stages(first, kept, Unpack("lefts", draw(st.sampled_from([None, 1, 2])), place, outer)))
    return draw(_stages(first, kept, Unpack("lefts", outer=outer), Unpack("rights", outer=draw(st.booleans()))))


@st.composite
def _first(draw: st.DrawFn) -> Pipeline:
    first = replace(draw(pipelines(how=Accumulation.RETRACTING)), name="first")
    if first.finishing == "close":
        return replace(first, finishing="refuse", when=AfterWatermark(late=AfterCount(1)), allowed_lateness=seconds(2))
    return first


@st.composite
def _stages(draw: st.DrawFn, first: Pipeline, kept: bool, *steps: ElementWise) -> Pipeline:
    made = draw(_later(first, "second", kept, steps))
    return draw(_later(made, "third", kept, ())) if draw(st.integers(0, 2)) == 0 else made


SIDES = {
    side: Pack(side, {f"{side}_id": "id", f"{side}_value": "value", f"{side}_at": "at"}, keep)
    for side, keep in {"left": Match("value", ">=", 2), "right": Match("good", "==", True)}.items()
}
"""Two sides of the records of `LOG`; a record may be on both of them, or on none."""


def gathering() -> dict[str, Combiner]:
    """Both sides, as a stage that gathers them has them."""
    return {"lefts": Collect("left"), "rights": Collect("right")}


@st.composite
def _later(draw: st.DrawFn, earlier: Pipeline, name: str, kept: bool, before: tuple[ElementWise, ...]) -> Pipeline:
    steps = list(before)
    if draw(st.booleans()):
        length = (Col("window_end") - Col("window_start")) // seconds(1)
        steps.append(Derive({f"{name}_length": length, f"{name}_known": If(Missing("window_end"), Value(0), Value(1))}))
    columns: Mapping[str, str] = earlier.panes.columns
    for step in steps:
        columns = step.columns(columns)
    packed = [n for n, type in columns.items() if is_plain(type) and type != "double"]
    sums = [n for n, type in columns.items() if is_exact_number(type)]
    if len(sums) > 0 and draw(st.booleans()):
        capped = draw(st.sampled_from(sums))
        caps: list[int | Decimal] = [2, Decimal("2.5")]
        cap = Value(draw(st.sampled_from(caps)))
        least = If(Match(capped, ">", 2), cap, draw(st.sampled_from([Col(capped), Col(capped), None])))
        if not list(least.faults("", columns)):
            steps.append(Derive({f"{name}_capped": least}))
    columns = earlier.panes.columns
    for step in steps:
        columns = step.columns(columns)
    numbers = [n for n, type in columns.items() if is_exact_number(type) or type == "double"]
    exact_types = {n: type for n, type in columns.items() if is_plain(type) and type != "double"}
    plain = [n for n in exact_types if n not in ("window_start", "window_end")]
    keys = [n for n in plain if n != "event_time"]
    what: dict[str, Combiner] = {f"{name}_n": Count()}
    if kept and draw(st.integers(0, 3)) == 0:
        # Of panes that may be taken back, so the highest may be another one then.
        by = draw(st.sampled_from(packed))
        steps.append(Pack(f"{name}_packed", {f"{name}_by": by, f"{name}_other": draw(st.sampled_from(packed))}))
        what[f"{name}_highest"] = Highest(f"{name}_packed", by=f"{name}_by")
    for place in range(draw(st.integers(0, 2))):
        choices: list[Combiner] = [Count(draw(st.sampled_from(plain)))]
        if numbers:
            column = draw(st.sampled_from(numbers))
            choices += [Sum(column), Mean(column), Variance(column)]
        choices += [AnyTrue(n) for n, type in columns.items() if type == "boolean"]
        if kept:
            column = draw(st.sampled_from(plain))
            choices += [Min(column), Max(column), AnyValue(column)] * 2
            choices += [TopK(column, 2), Distinct(column), Collect(column), ApproxDistinct(column)]
        sound = [c for c in choices if c.column and not list(c.faults("", columns[c.column]))]
        what[f"{name}_{place}"] = draw(st.sampled_from(sound))
    few, offset = draw(st.integers(1, 9).map(seconds)), seconds(draw(st.sampled_from([0, 0, 1])))
    bounded = earlier.where.merges or earlier.where.longest is not None
    where = draw(st.sampled_from([Fixed(few, offset), Sliding(few, seconds(2)), Calendar("day"), Global()]))
    late = draw(st.sampled_from([AfterCount(1), AfterCount(2), AfterDelay(seconds(20))]))
    early = draw(st.sampled_from([None, None, AfterCount(1), AfterCount(3), Every(seconds(20))]))
    waits = earlier.trails > 0
    when = draw(st.sampled_from([AfterWatermark(early=early, late=late if waits else None), Repeat(AfterCount(1))]))
    exact = [n for n, type in columns.items() if type == "bigint"]
    keep = Match(draw(st.sampled_from(exact)), ">=", 1) if exact and draw(st.integers(0, 3)) == 0 else None
    return Pipeline(
        name=name,
        log=earlier.panes,
        each=tuple(steps),
        keep=keep,
        key=tuple(draw(st.lists(st.sampled_from(keys), max_size=2, unique=True))) if keys else (),
        what=what,
        where=where if bounded else Global(),
        when=when,
        how=draw(st.sampled_from([Accumulation.ACCUMULATING, Accumulation.RETRACTING, Accumulation.RETRACTING]))
        if name == "third"
        else Accumulation.RETRACTING,
        on_time=draw(st.sampled_from(["always", "if_non_empty"])),
        closing=draw(st.sampled_from(["if_non_empty", "always"])),
    )


def holds_for_stages(pipeline: Pipeline, epochs: Epochs) -> tuple[ReferenceRun, ...]:
    """All the laws, of every stage of the reference's fold; gives the stages' runs."""
    stages = pipeline.stages
    states: tuple[WindowsState, ...] = ()
    runs = tuple(ReferenceRun(WindowsState(), (), ()) for _ in stages)
    records: list[Record] = []
    for bundle, clock in epochs:
        one = fold_stages(pipeline, [(bundle, clock)], states)
        states = tuple(run.state for run in one)
        runs = tuple(
            ReferenceRun(new.state, (*old.panes, *new.panes), (*old.late, *new.late))
            for old, new in zip(runs, one, strict=True)
        )
        records += bundle
        for stage, run in zip(stages[1:], runs[1:], strict=True):
            if run.late:
                raise Broken(f"T3: a correction came too late for {stage.name}: {run.late[0]}")
            closed_are_batch(stage, records, runs[0], run)
    for stage, run in zip(stages[1:], runs[1:], strict=True):
        clock_ = run.state.clock
        if clock_ is not None and clock_.watermark == END_OF_TIME:
            expected = batch(stage, records, runs[0].late)
            laws.same_answers(answers(run.panes), expected, f"L1, the answers of {stage.name} against the batch's")
            if run.state.windows:
                raise Broken(f"windows of {stage.name} stay in the state at the end of time")
        laws.panes_apply_to_answers(stage, run.panes)
        changes_hold_together(run.panes)
    whole = fold_stages(pipeline, epochs)
    for stage, run, again in zip(stages, runs, whole, strict=True):
        laws.same_panes(again.panes, run.panes, f"L3, {stage.name} folded at once", ordered=True)
        if again.state != run.state:
            raise Broken(f"L3: {stage.name} folded at once ends in another state")
    return runs


def closed_are_batch(stage: Pipeline, records: list[Record], first: ReferenceRun, run: ReferenceRun) -> None:
    """L1, at any time: the answers of windows that the stage's watermark has closed are the batch's over what came."""
    clock = run.state.clock
    assert clock is not None
    expected, found = batch(stage, records, first.late), answers(run.panes)
    closed = {place for place in {*expected, *found} if clock.watermark >= stage.closes(place[1].end)}
    law = f"L1, the windows of {stage.name} closed at {text(clock.watermark)} against the batch's"
    laws.same_answers({p: found[p] for p in closed if p in found}, {p: expected[p] for p in closed & {*expected}}, law)


def changes_hold_together(panes: tuple[Pane, ...]) -> None:
    """V1 of a later stage's panes: versions go up, what is taken back was said, and indices count what was said."""
    last: dict[Place, Pane] = {}
    for pane in panes:
        before = last.get((pane.key, pane.window))
        last[pane.key, pane.window] = pane
        if before is None:
            if pane.retraction or pane.version.index:
                raise Broken(f"V1: a window starts with pane 0:\n  {laws.told(pane)}")
        elif before.retraction and pane.retraction:
            raise Broken(f"V1: taken back twice:\n  {laws.told(before)}\n  {laws.told(pane)}")
        elif before.retraction and before.version == pane.version:
            continue
        elif not pane.version > before.version or pane.version.index != before.version.index + 1:
            raise Broken(f"V1: the version does not go up by one:\n  {laws.told(before)}\n  {laws.told(pane)}")
