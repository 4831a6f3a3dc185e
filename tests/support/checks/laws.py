"""The laws that every execution is held to, as functions that raise `Broken` and say where.

They take panes, answers and records, wherever those come from, so that one text holds the reference, the native and the
per-key execution to the same laws. `holds_for_fold` asks all of them of the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from types import UnionType
from typing import Any

from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import ClockError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, text
from tailrace.model.combiners.basic import AllTrue, AnyTrue, AnyValue, Combiner, Count, Max, Mean, Min, Sum
from tailrace.model.combiners.first_last import ByTime
from tailrace.model.combiners.lists import Collect, Distinct, Highest, Quantile, TopK
from tailrace.model.combiners.variance import Variance
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.reference import ReferenceRun, fold, prepared
from tailrace.model.step.step import Record, WindowsState
from tailrace.model.windows.panes import Accumulation, Answers, Key, Late, Pane, Timing, answers
from tailrace.model.windows.windows import Window
from tests.support.checks.batch_answers import backfilled, batch

Epochs = Sequence[tuple[Sequence[Record], Clock]]
Place = tuple[Key, Window]


class Broken(AssertionError):  # noqa: N818  (it reads as what it says)
    """A law that does not hold."""


# ------------------------------------------------------------------------------------------------- for reading them


def shown(value: object) -> str:
    """A result as a person would write it."""
    return f"{value}" if isinstance(value, Decimal | int) else repr(value)


def told(pane: Pane) -> str:
    """A pane in one line."""
    sign = "-" if pane.retraction else "+"
    values = ", ".join(f"{name}={shown(value)}" for name, value in pane.values.items())
    version = "/".join(map(str, pane.version))
    return (
        f"{sign} {version:8} {pane.timing.value:8} {pane.key} {pane.window} {values} (watermark {text(pane.watermark)})"
    )


def told_answers(found: Answers) -> str:
    """Answers, one a line."""
    return "\n".join(f"  {key} {window}: {dict(found[key, window])}" for key, window in _sorted(found)) or "  none"


def canonical(pane: Pane) -> tuple[Any, ...]:
    """A pane as a tuple that hashes and equals that of an equal pane: to compare panes as a multiset."""
    names = sorted({*pane.values, *pane.answer})
    values = tuple((name, *_plain(pane.values.get(name)), *_plain(pane.answer.get(name))) for name in names)
    version, retraction = tuple(pane.version), pane.retraction
    times = (pane.watermark, pane.processing_time)
    return (pane.key, pane.window, version, retraction, pane.timing, pane.is_last, *times, values)


def _plain(value: Any) -> tuple[str, Any]:
    value = (
        tuple(tuple(one.items()) if isinstance(one, dict) else one for one in value)
        if isinstance(value, list)
        else value
    )
    return (type(value).__name__ if isinstance(value, str) else "value", value)


def _sorted(places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda place: (repr(place[0]), place[1]))


# ------------------------------------------------------------------------------------------------------------- laws


def same_answers(
    found: Mapping[Place, Mapping[str, Any]], expected: Mapping[Place, Mapping[str, Any]], law: str
) -> None:
    """Both give the same windows the same results."""
    lines = []
    for key, window in _sorted({*found, *expected}):
        one, other = found.get((key, window)), expected.get((key, window))
        if one is None or other is None or dict(one) != dict(other):
            was, should = ("nothing" if side is None else str(dict(side)) for side in (one, other))
            lines.append(f"  {key} {window}: found {was}, expected {should}")
    if lines:
        raise Broken("\n".join([f"{law}:", *lines]))


def same_panes(found: Iterable[Pane], expected: Iterable[Pane], law: str, *, ordered: bool = False) -> None:
    """Both are the same panes; in the same order too, if `ordered`."""
    one, other = list(found), list(expected)
    ours, theirs = Counter(map(canonical, one)), Counter(map(canonical, other))
    lines = [f"  found only    {told(p)}" for p in one if ours[canonical(p)] > theirs[canonical(p)]]
    lines += [f"  expected only {told(p)}" for p in other if theirs[canonical(p)] > ours[canonical(p)]]
    if lines:
        raise Broken("\n".join([f"{law}:", *lines]))
    if ordered and [canonical(p) for p in one] != [canonical(p) for p in other]:
        raise Broken(f"{law}: the same panes, in another order")


def ended_is_batch(pipeline: Pipeline, records: Iterable[Record], panes: Iterable[Pane], late: Iterable[Late]) -> None:
    """L1: once the watermark has passed everything, the answers are the batch's over the log less what was late."""
    same_answers(answers(panes), batch(pipeline, records, late), "L1, the stream's answers against the batch's")


def closed_is_batch(
    pipeline: Pipeline, records: Iterable[Record], panes: Iterable[Pane], late: Iterable[Late], watermark: int
) -> None:
    """L1, at any time: the answers of windows that the watermark has closed are the batch's over what came so far."""
    expected, found = batch(pipeline, records, late), answers(panes)
    closed = {place for place in expected if watermark >= pipeline.closes(place[1].end)}
    law = f"L1, the windows closed at {text(watermark)} against the batch's"
    same_answers({p: found[p] for p in closed if p in found}, {p: expected[p] for p in closed}, law)
    for key, window in found.keys() - expected.keys():
        # It merged away: its answer stands until its successor's first pane, which is open.
        if not any(k == key and w.overlaps(window) and (k, w) not in closed for k, w in expected):
            raise Broken(f"{law}: {key} {window} has an answer, and no window of the batch takes it over")


def applied(pipeline: Pipeline, panes: Iterable[Pane]) -> Answers:
    """What a consumer makes of panes by the mode's own rule, taken strictly in the order in which they fired (L2).

    Discarding: combine. Accumulating: replace. Retracting: retract, then add. It does not look at versions or answers.
    A mean does not combine: leave it out of a discarding definition (`combinable`).
    """
    held: dict[Place, Mapping[str, Any]] = {}
    for pane in panes:
        place = (pane.key, pane.window)
        if pane.retraction:
            if place not in held or dict(held[place]) != dict(pane.values):
                stands = dict(held[place]) if place in held else "nothing"
                raise Broken(f"L2: it takes back what does not stand ({stands} does):\n  {told(pane)}")
            del held[place]
        elif pipeline.how is Accumulation.DISCARDING and place in held:
            held[place] = {
                name: _combined(combiner, held[place][name], pane.values[name])
                for name, combiner in pipeline.what.items()
            }
        elif pipeline.how is Accumulation.RETRACTING and place in held:
            raise Broken(f"L2: it is added while {dict(held[place])} was not taken back:\n  {told(pane)}")
        else:
            held[place] = pane.values
    return held


def _combined(combiner: Combiner, a: Any, b: Any) -> Any:
    choices: dict[type, Callable[[Any, Any], Any]] = {
        Count: lambda x, y: x + y,
        Collect: lambda x, y: sorted(x + y),
        Sum: lambda x, y: x + y,
        Min: min,
        Max: max,
        AnyValue: min,
        AllTrue: lambda x, y: x and y,
        AnyTrue: lambda x, y: x or y,
    }
    return a if b is None else b if a is None else choices[type(combiner)](a, b)


def combinable(pipeline: Pipeline) -> Pipeline:
    """Give a definition results whose panes combine: a sum for a mean, all values for how many there are."""
    instead: dict[type | UnionType, Callable[[str], Combiner]] = {
        Mean | Variance: Sum,
        ByTime: AnyValue,
        TopK | Distinct | Highest | Quantile: Collect,
    }

    def combines(combiner: Any) -> Combiner:
        return next((other(combiner.column) for kind, other in instead.items() if isinstance(combiner, kind)), combiner)

    return replace(pipeline, what={name: combines(one) for name, one in pipeline.what.items()})


def panes_apply_to_answers(pipeline: Pipeline, panes: Sequence[Pane]) -> None:
    """L2, at every prefix: applying the panes in order gives the answers."""
    for length in range(len(panes) + 1):
        if length == len(panes) or panes[length].version.epoch != panes[max(length - 1, 0)].version.epoch:
            found = applied(pipeline, panes[:length])
            same_answers(found, answers(panes[:length]), f"L2, the first {length} panes applied in order")


def panes_hold_together(pipeline: Pipeline, panes: Iterable[Pane]) -> None:
    """V1, V3 and M1 to M4 of the panes themselves.

    Versions of a key and window go up; but for a retraction, which may share the version of the pane that follows it.
    The pane index counts panes. A pane is early just before the watermark passes its window. An accumulating pane holds
    its window's answer, and only one that merges away is taken back but for retracting.
    """
    last: dict[Place, Pane] = {}
    gone: set[Place] = set()
    for pane in panes:
        place = (pane.key, pane.window)
        before = last.get(place)
        if before is None:
            if pane.retraction or pane.version.index != 0:
                raise Broken(f"V1: a window starts with pane 0:\n  {told(pane)}")
        else:
            if place in gone:
                raise Broken(f"V3: a window that merged away came back:\n  {told(pane)}")
            if before.is_last and not (pane.retraction and pipeline.where.merges):
                raise Broken(f"M4: a pane comes after its window's last:\n  {told(before)}\n  {told(pane)}")
            pair = before.retraction and not pane.retraction and before.version == pane.version
            if before.retraction and not pair:
                raise Broken(f"V1: a retraction is followed by its own pane or by nothing:\n  {told(pane)}")
            if not pair and not pane.version > before.version:
                raise Broken(f"V1: the version does not go up:\n  {told(before)}\n  {told(pane)}")
            if not pair and pane.version.index != before.version.index + 1:
                raise Broken(f"V1: the pane index skips:\n  {told(before)}\n  {told(pane)}")
        if (pane.timing is Timing.EARLY) != (pane.watermark < pane.window.end) and not pane.retraction:
            raise Broken(f"M1: {pane.timing.value} with the watermark at {text(pane.watermark)}:\n  {told(pane)}")
        whole = pane.retraction or pipeline.how is not Accumulation.DISCARDING
        if whole and dict(pane.values) != dict(pane.answer):
            raise Broken(f"V3: it holds another thing than its answer {dict(pane.answer)}:\n  {told(pane)}")
        last[place] = pane
    for place, pane in last.items():
        if pane.retraction:
            gone.add(place)
            if not pipeline.where.merges:
                raise Broken(f"V3: the window was taken back for good, and windows do not merge:\n  {told(pane)}")


def nothing_is_lost(pipeline: Pipeline, records: Iterable[Record], run: ReferenceRun) -> None:
    """X6, at any time: each record's windows are counted in an answer or pending in the state, or they are late.

    `run` is of a definition with the result `counted`, a `Count()`.
    """
    own = (record for _, record in prepared(pipeline, records))
    given = sum(len(pipeline.where.assign(instant(record[pipeline.log.event_time]), record)) for record in own)
    open_windows = {(key, window): row for key, own in run.state.windows.items() for window, row in own.items()}
    merging = {(key, p.window) for (key, _), row in open_windows.items() for p in row["predecessors"]}
    settled = sum(
        row["counted"] for place, row in answers(run.panes).items() if place not in open_windows.keys() | merging
    )
    pending = sum(row["fired_counted__n"] + row["pending_counted__n"] for row in open_windows.values())
    if settled + pending + len(run.late) != given:
        where = f"{settled} are in answers, {pending} in open windows, {len(run.late)} were late"
        raise Broken(f"X6: {given} windows of records came, {where}")


def counting(pipeline: Pipeline) -> Pipeline:
    """Give a definition one result more, `counted`: how many records."""
    return replace(pipeline, what={**pipeline.what, "counted": Count()})


def lateness_is_right(pipeline: Pipeline, epochs: Epochs, late: Iterable[Late]) -> None:
    """M1 and M4: what is late is what came when the watermark before its epoch had closed its own window.

    With `finishing="refuse"`, nothing is late for another reason.
    """
    expected: Counter[tuple[int, Window, int]] = Counter()
    before = BEGINNING
    for bundle, clock in epochs:
        for source, record in prepared(pipeline, bundle):
            for window in pipeline.where.assign(instant(record[pipeline.log.event_time]), record):
                if before >= min(END_OF_TIME, window.end + pipeline.lateness):
                    expected[id(source), window, clock.epoch] += 1
        before = clock.watermark
    late = list(late)
    found = Counter((id(one.record), one.window, one.epoch) for one in late if one.reason == "expired")
    if found != expected:
        raise Broken(f"M1: {found.total()} windows of records were expired, {expected.total()} should be")
    finished = [one for one in late if one.reason == "finished"]
    if finished and pipeline.finishing == "refuse":
        raise Broken(f'M4: finishing="refuse", and a trigger was done before {finished[0].record}')


def timings_are_right(pipeline: Pipeline, epochs: Epochs, panes: Iterable[Pane], late: Iterable[Late]) -> None:
    """M4, for windows that do not merge: a pane after the watermark is late just when all that is new in it is."""
    if pipeline.where.merges:
        return
    lost = {(id(one.record), one.window) for one in late}
    fresh: dict[Place, list[bool]] = {}
    fired: dict[int, list[Pane]] = {}
    for pane in panes:
        fired.setdefault(pane.version.epoch, []).append(pane)
    before = BEGINNING
    for bundle, clock in epochs:
        for source, record in prepared(pipeline, bundle):
            key = tuple(record[column] for column in pipeline.key)
            for window in pipeline.where.assign(instant(record[pipeline.log.event_time]), record):
                if (id(source), window) not in lost:
                    fresh.setdefault((key, window), []).append(before < window.end)
        for pane in fired.get(clock.epoch, []):
            if not pane.retraction:
                new = fresh.pop((pane.key, pane.window), [])
                expected = Timing.ON_TIME if any(new) else Timing.LATE
                if new and pane.timing is not Timing.EARLY and pane.timing is not expected:
                    raise Broken(f"M4: {sum(new)} of its {len(new)} new records came in time:\n  {told(pane)}")
        before = clock.watermark


def lasts_are_told(pipeline: Pipeline, epochs: Epochs, panes: Iterable[Pane]) -> None:
    """M4: a window's latest pane is its last where its epoch closes the window, or where its trigger finishes."""
    clocks = [clock for _, clock in epochs]
    before = dict(zip((clock.epoch for clock in clocks), [BEGINNING, *(c.watermark for c in clocks)], strict=False))
    after = {clock.epoch: clock.watermark for clock in clocks}
    latest = {(pane.key, pane.window): pane for pane in panes}
    for pane in latest.values():
        closes = min(END_OF_TIME, pane.window.end + pipeline.lateness)
        closing = before[pane.version.epoch] < closes <= after[pane.version.epoch]
        if pane.retraction:
            if pane.is_last is not None:
                raise Broken(f"M4: a retraction says that it is the last:\n  {told(pane)}")
        elif closing and not pane.is_last:
            raise Broken(f"M4: the window closes, and its latest pane is not the last:\n  {told(pane)}")
        elif pane.is_last and not closing and not pipeline.when.finishes:
            raise Broken(f"M4: the last pane of a window that does not close:\n  {told(pane)}")


def backfill_is_batch(pipeline: Pipeline, records: Sequence[Record], cuts: Iterable[int] = ()) -> None:
    """L1 and V5: backfills of the intervals between the cuts give, all together, the batch over the whole log."""
    bounds = [BEGINNING, *sorted(set(cuts)), END_OF_TIME]
    union: Answers = {}
    for first, last in pairwise(bounds):
        for place, values in backfilled(pipeline, records, first, last).items():
            if place in union:
                raise Broken(f"V5: {place[0]} {place[1]} comes out of two intervals")
            union[place] = values
    same_answers(union, batch(pipeline, records), f"V5, backfills cut at {[text(b) for b in bounds[1:-1]]}")


def replays_the_same(pipeline: Pipeline, epochs: Epochs) -> None:
    """L3: folding again gives the same panes, row for row; and so does going on from the state of any epoch."""
    whole = fold(pipeline, epochs)
    again = fold(pipeline, epochs)
    same_panes(again.panes, whole.panes, "L3, folded again", ordered=True)
    if again != whole:
        raise Broken("L3: folded again, the states or late records differ")
    state = WindowsState()
    before: list[Pane] = []
    for place, epoch in enumerate(epochs):
        rest = fold(pipeline, epochs[place:], state)
        same_panes([*before, *rest.panes], whole.panes, f"L3, from epoch {epoch[1].epoch}", ordered=True)
        if rest.state != whole.state:
            raise Broken(f"L3: from epoch {epoch[1].epoch} the last state is another")
        one = fold(pipeline, [epoch], state)
        state = one.state
        before += one.panes


def clock_never_goes_back(pipeline: Pipeline, epochs: Epochs) -> None:
    """T3: a clock with a smaller watermark or processing time, or no larger number, is refused, and changes nothing."""
    run = fold(pipeline, epochs)
    last = run.state.clock
    if last is None:
        return
    for wrong in (
        replace(last, epoch=last.epoch + 1, watermark=last.watermark - 1),
        replace(last, epoch=last.epoch + 1, processing_time=last.processing_time - 1),
        last,
        replace(last, epoch=last.epoch - 1),
    ):
        try:
            fold(pipeline, [([], wrong)], run.state)
        except ClockError:
            continue
        raise Broken(f"T3: after {last} came {wrong}, and nobody minded")


def quiet_input_goes_quiet(pipeline: Pipeline, state: WindowsState, *, step: int, epochs: int = 90) -> None:
    """With no more records and a watermark that stands, panes come to an end: no trigger fires for ever on nothing.

    Time goes by, and the signals that the trigger waits for come in every other epoch. What is pending may fire, after
    whatever delay, and after that each `AtWatermark` in the trigger at most once.
    """
    if state.clock is None:
        return
    signals = tuple(pipeline.when.signals())
    clocks = [
        replace(
            state.clock,
            epoch=state.clock.epoch + n,
            processing_time=state.clock.processing_time + n * step,
            signals=signals if n % 2 else (),
        )
        for n in range(1, epochs + 1)
    ]
    run = fold(pipeline, [([], clock) for clock in clocks], state)
    most = 1 + repr(pipeline.when).count("AtWatermark(")
    for (key, window), count in Counter((pane.key, pane.window) for pane in run.panes if not pane.retraction).items():
        if count > most:
            raise Broken(
                f"{key} {window} fires {count} panes in {epochs} epochs with nothing new, and not at most {most}"
            )


def holds_for_fold(pipeline: Pipeline, epochs: Epochs) -> ReferenceRun:
    """All the laws, of the reference's fold; gives the fold's run."""
    pipeline = counting(combinable(pipeline) if pipeline.how is Accumulation.DISCARDING else pipeline)
    state, panes, late, records = WindowsState(), list[Pane](), list[Late](), list[Record]()
    for bundle, clock in epochs:
        one = fold(pipeline, [(bundle, clock)], state)
        state = one.state
        panes += one.panes
        late += one.late
        records += bundle
        closed_is_batch(pipeline, records, panes, late, clock.watermark)
        nothing_is_lost(pipeline, records, ReferenceRun(state, tuple(panes), tuple(late)))
    run = ReferenceRun(state, tuple(panes), tuple(late))
    if state.clock is not None and state.clock.watermark == END_OF_TIME:
        ended_is_batch(pipeline, records, panes, late)
        if state.windows:
            raise Broken(f"windows stay in the state at the end of time: {dict(state.windows)}")
    panes_apply_to_answers(pipeline, panes)
    panes_hold_together(pipeline, panes)
    lateness_is_right(pipeline, epochs, late)
    timings_are_right(pipeline, epochs, panes, late)
    lasts_are_told(pipeline, epochs, panes)
    return run
