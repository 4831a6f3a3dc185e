"""Apply the reference execution to a complete input: as a stream of epochs (`fold`), or as a batch computation
(`batch`).

`batch` shares no code with `step` except the combiners and windows, so that the results of `step` can be tested against
the results of `batch` (law L1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.combiners.first_last import seen
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.stages import changes, record_of, watermark
from tailrace.model.step.step import Record, WindowsState, step
from tailrace.model.triggers.combinators import AfterCount, AfterWatermark
from tailrace.model.windows.panes import Answers, Key, Late, Pane, Rejected, Timestamp, answers
from tailrace.model.windows.windows import Window


@dataclass(frozen=True)
class ReferenceRun:
    """The result of folding epochs into a pipeline: the final state, the panes, and late and rejected records."""

    state: WindowsState
    panes: tuple[Pane, ...]
    late: tuple[Late, ...]
    rejected: tuple[Rejected, ...] = ()


def fold(
    pipeline: Pipeline, epochs: Iterable[tuple[Sequence[Record], Clock]], state: WindowsState | None = None
) -> ReferenceRun:
    """Fold epochs into a pipeline, in order.

    If `pipeline` is a later stage, the earlier stages are folded as well. An epoch is a bundle of records and a clock.
    `state` is the state from which a pipeline with a single stage continues. To continue a later stage from a state,
    use `fold_stages`.

    >>> from tailrace.model.samples import examples
    >>> run = fold(examples.figure(6), examples.element_at_a_time())
    >>> [pane.values["total"] for pane in run.panes]
    [51]
    """
    return fold_stages(pipeline, epochs, () if state is None else (state,))[-1]


def fold_stages(
    pipeline: Pipeline,
    epochs: Iterable[tuple[Sequence[Record], Clock]],
    states: Sequence[WindowsState] = (),
    corrected: Sequence[Sequence[Pane]] = (),
) -> tuple[ReferenceRun, ...]:
    """Fold epochs into every stage of a definition: in each epoch, the panes of a stage are the next stage's bundle.

    `states` are the states from which the stages continue, in the order of the stages; a stage for which no state is
    passed starts with an empty state. For each stage, `corrected` has the panes with which a backfill corrected open
    windows of that stage's state. The next stage reads these panes in the first epoch.
    """
    stages = pipeline.stages
    more = [changes(stage, filter(lambda pane: pane.open, own)) for stage, own in zip(stages, corrected, strict=False)]
    at = [*states, *(WindowsState() for _ in stages[len(states) :])]
    panes: list[list[Pane]] = [[] for _ in stages]
    late: list[list[Late]] = [[] for _ in stages]
    rejected: list[list[Rejected]] = [[] for _ in stages]
    for bundle, clock in epochs:
        records, time = bundle, clock
        for place, stage in enumerate(stages):
            at[place], fired, too_late, failed = step(stage, at[place], records, time)
            panes[place] += fired
            late[place] += too_late
            rejected[place] += failed
            records, held = changes(stage, fired), at[place + 1].clock if place + 1 < len(stages) else None
            records += more[place] if place < len(more) else ()
            time = replace(time, watermark=watermark(stage, at[place], held))
        more = []
    return tuple(
        ReferenceRun(*one) for one in zip(at, *(map(tuple, of) for of in (panes, late, rejected)), strict=True)
    )


def batch(pipeline: Pipeline, records: Iterable[Record], late: Iterable[Late] = ()) -> Answers:
    """Compute the answers from all records at once; leave a late record out of the windows for which it was late.

    The result is the same as the result of a batch engine that reads the complete input. Triggers and accumulation do
    not affect the result. If windows merge, every late record is left out before windows are merged, regardless of the
    reason why the record was late. `late` contains the late records of the first stage. A later stage has no late
    records, because it waits for corrections. The answers of a later stage are computed from the answers of the
    preceding stage.
    """
    o = Scalars()
    return {
        place: {name: _combined(pipeline, name, inside, o) for name in pipeline.what}
        for place, inside in _grouped(pipeline, records, late).items()
    }


def _grouped(
    pipeline: Pipeline, records: Iterable[Record], late: Iterable[Late]
) -> dict[tuple[Key, Window], list[Record]]:
    """Apply all steps of the definition to the records, merge windows, and group the records by key and window."""
    if pipeline.earlier is not None:
        records, late = _answered(pipeline.earlier, records, late), ()
    dropped: dict[tuple[int, Key], set[Window]] = {}
    for one in late:
        dropped.setdefault((id(one.record), one.key), set()).add(one.window)
    placed: dict[Key, dict[Window, list[Record]]] = {}
    for source, record in prepared(pipeline, records):
        key = tuple(record.get(column) for column in pipeline.key)
        lost = dropped.get((id(source), key), ())
        for window in pipeline.windows_of(instant(record[pipeline.log.event_time]), record):
            if window not in lost and not (pipeline.where.merges and lost):
                placed.setdefault(key, {}).setdefault(window, []).append(record)
    found: dict[tuple[Key, Window], list[Record]] = {}
    for key, windows in placed.items():
        spans = pipeline.where.gathered(windows) if pipeline.where.merges else {window: [window] for window in windows}
        for span, members in spans.items():
            found[key, span] = [record for member in members for record in windows[member]]
    return found


def prepared(pipeline: Pipeline, records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield a pair for each record that the definition's steps return: the log's record, and the returned record.

    Rejected records are left out.
    """
    for record in records:
        yield from ((record, one) for one in pipeline.prepared(record).records)


def _answered(pipeline: Pipeline, records: Iterable[Record], late: Iterable[Late]) -> list[Record]:
    """Compute the answers of a stage, and return the answers as records for the next stage."""
    o, found = Scalars(), []
    choose = {Timestamp.EARLIEST: min, Timestamp.LATEST: max}.get(pipeline.timestamp)
    for (key, window), inside in _grouped(pipeline, records, late).items():
        values = {name: _combined(pipeline, name, inside, o) for name in pipeline.what}
        times = (instant(record[pipeline.log.event_time]) for record in inside)
        found.append(record_of(pipeline, key, window, values, window.timestamp if choose is None else choose(times)))
    return found


def at_once(pipeline: Pipeline, records: Sequence[Record], epoch: int = 0, now: int = 0) -> ReferenceRun:
    """Fold all records in one step, as a complete input. A backfill computes the same result (rule X4)."""
    return fold(pipeline, [(records, Clock(epoch, END_OF_TIME, now))])


def backfilled(pipeline: Pipeline, records: Sequence[Record], first: int, last: int) -> Answers:
    """Compute the answers of a backfill of `[first, last)`, that is, of all windows with a timestamp in this range
    (rule V5).

    All records are folded in one step, as a complete input. So no record is late, and each window fires once.
    """
    found = answers(at_once(_once(pipeline), records).panes)
    return {place: values for place, values in found.items() if first <= place[1].timestamp < last}


def _once(pipeline: Pipeline) -> Pipeline:
    """Return a copy of the definition for folding a complete input. The copy fires each window only once."""
    log, when = pipeline.log, AfterWatermark()
    if pipeline.earlier is not None:
        earlier = _once(pipeline.earlier)
        log, when = earlier.panes, AfterWatermark(late=AfterCount(1)) if earlier.trails else when
    return replace(pipeline, log=log, when=when, allowed_lateness=None, closing="if_non_empty")


def _combined(pipeline: Pipeline, name: str, records: Iterable[Record], o: Scalars) -> object:
    combiner = pipeline.what[name]
    type_ = pipeline.type_of(combiner)
    parts = combiner.parts(type_)
    held = [part.zero(o) for part in parts]
    for record in records:
        value = None if combiner.column is None else record.get(combiner.column)
        at = instant(record[pipeline.log.event_time])
        lifted = combiner.lift(o, seen(o, combiner, value, at), type_)
        held = [part.merged(o, a, b) for part, a, b in zip(parts, held, lifted, strict=True)]
    return combiner.result(o, {part.name: term for part, term in zip(parts, held, strict=True)}, type_)
