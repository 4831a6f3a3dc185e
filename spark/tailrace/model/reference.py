"""The reference execution over whole inputs: as a stream of epochs, and as the plain batch answer.

`batch` shares nothing with `step` but the combiners and windows: it is what `step` is held against (law L1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from tailrace.model.algebra import Scalars
from tailrace.model.clock import Clock
from tailrace.model.panes import Answers, Key, Late, Pane, answers
from tailrace.model.pipeline import Pipeline
from tailrace.model.step import Record, State, step
from tailrace.model.time import END_OF_TIME, instant
from tailrace.model.triggers import AtWatermark
from tailrace.model.windows import Window


@dataclass(frozen=True)
class Run:
    """Everything that a fold over epochs gave."""

    state: State
    panes: tuple[Pane, ...]
    late: tuple[Late, ...]


def fold(pipeline: Pipeline, epochs: Iterable[tuple[Sequence[Record], Clock]], state: State | None = None) -> Run:
    """Fold `step` over bundles with their clocks, in order.

    >>> from tailrace.model import examples
    >>> run = fold(examples.figure(6), examples.element_at_a_time())
    >>> [pane.values["total"] for pane in run.panes]
    [51]
    """
    state = state or State()
    panes: list[Pane] = []
    late: list[Late] = []
    for bundle, clock in epochs:
        state, fired, too_late = step(pipeline, state, bundle, clock)
        panes += fired
        late += too_late
    return Run(state, tuple(panes), tuple(late))


def batch(pipeline: Pipeline, records: Iterable[Record], late: Iterable[Late] = ()) -> Answers:
    """The answer over all the records at once, less the windows of those that came too late.

    What a batch engine would say of a finished input; triggers and accumulation do not come into it. For windows that
    merge, a record that expired is left out before merging, and one that came to a finished window goes with it.
    """
    o = Scalars()
    dropped: dict[int, set[Window]] = {}
    for one in late:
        dropped.setdefault(id(one.record), set()).add(one.window)
    placed: dict[Key, dict[Window, list[Record]]] = {}
    for record in filter(pipeline.keeps, records):
        key = tuple(record.get(column) for column in pipeline.key)
        lost = dropped.get(id(record), ())
        for window in pipeline.where.assign(instant(record[pipeline.log.event_time]), record):
            if window not in lost and not (pipeline.where.merges and lost):
                placed.setdefault(key, {}).setdefault(window, []).append(record)
    found: Answers = {}
    for key, windows in placed.items():
        spans = pipeline.where.gathered(windows) if pipeline.where.merges else {window: [window] for window in windows}
        for span, members in spans.items():
            inside = [record for member in members for record in windows[member]]
            found[key, span] = {name: _combined(pipeline, name, inside, o) for name in pipeline.what}
    return found


def at_once(pipeline: Pipeline, records: Sequence[Record], epoch: int = 0, now: int = 0) -> Run:
    """One step over all the records as a finished input: the fold that a backfill makes (rule X4)."""
    return fold(pipeline, [(records, Clock(epoch, END_OF_TIME, now))])


def backfilled(pipeline: Pipeline, records: Sequence[Record], first: int, last: int) -> Answers:
    """The answers that a backfill of `[first, last)` gives: of the windows whose timestamp lies in it (rule V5).

    It folds the whole log in one step, as a finished input: no record is late and each window fires once.
    """
    once = replace(pipeline, when=AtWatermark(), allowed_lateness=timedelta(0), closing="if_non_empty")
    found = answers(at_once(once, records).panes)
    return {place: values for place, values in found.items() if first <= place[1].timestamp < last}


def _combined(pipeline: Pipeline, name: str, records: Iterable[Record], o: Scalars) -> object:
    combiner = pipeline.what[name]
    type_ = pipeline.type_of(combiner)
    parts = combiner.parts(type_)
    held = [part.zero(o) for part in parts]
    for record in records:
        value = None if combiner.column is None else record.get(combiner.column)
        lifted = combiner.lift(o, value, type_)
        held = [part.merged(o, a, b) for part, a, b in zip(parts, held, lifted, strict=True)]
    return combiner.result(o, {part.name: term for part, term in zip(parts, held, strict=True)}, type_)
