"""The answers of a pipeline by a batch computation over all records, and the answers of a backfill.

`batch` shares no code with `step` except the combiners and windows, so that the results of `step` can be tested against
the results of `batch` (law L1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.time import instant
from tailrace.model.definition.pipeline import UNANSWERED, Pipeline
from tailrace.model.step.reference import at_once, prepared
from tailrace.model.step.stages import record_of
from tailrace.model.step.step import Record
from tailrace.model.triggers.combinators import AfterWatermark
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import Answers, Key, Late, Timestamp, answers
from tailrace.model.windows.windows import Window


def batch(pipeline: Pipeline, records: Iterable[Record], late: Iterable[Late] = ()) -> Answers:
    """Compute the answers from all records at once; leave a late record out of the windows for which it was late.

    The result is the same as the result of a batch engine that reads the complete input. Triggers and accumulation do
    not affect the result. If windows merge, every late record is left out before windows are merged, regardless of the
    reason why the record was late. `late` contains the late records of the first stage. A later stage has no late
    records, because it waits for corrections. The answers of a later stage are computed from the answers of the
    preceding stage.
    """
    o = Scalars()
    return {place: _results(pipeline, inside, o) for place, inside in _grouped(pipeline, records, late).items()}


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


def _answered(pipeline: Pipeline, records: Iterable[Record], late: Iterable[Late]) -> list[Record]:
    """Compute the answers of a stage, and return the answers as records for the next stage."""
    o, found = Scalars(), []
    choose = {Timestamp.EARLIEST: min, Timestamp.LATEST: max}.get(pipeline.timestamp)
    for (key, window), inside in _grouped(pipeline, records, late).items():
        values = _results(pipeline, inside, o)
        times = (instant(record[pipeline.log.event_time]) for record in inside)
        found.append(record_of(pipeline, key, window, values, window.timestamp if choose is None else choose(times)))
    return found


def _results(pipeline: Pipeline, records: Sequence[Record], o: Scalars) -> dict[str, object]:
    """Compute the results of records, and the reasons why results are null."""
    found = {name: _combined(pipeline, name, records, o) for name in pipeline.what}
    values = {name: value for name, (value, _) in found.items()}
    whys = [f"{name}: {why}" for name, (value, why) in found.items() if value is None and why is not None]
    return values | ({UNANSWERED: "; ".join(whys)} if whys else {})


def _combined(pipeline: Pipeline, name: str, records: Iterable[Record], o: Scalars) -> tuple[object, object]:
    combiner = pipeline.what[name]
    type_ = pipeline.type_of(combiner)
    parts = combiner.parts(type_)
    held = [part.zero(o) for part in parts]
    for record in records:
        value = combiner.read(o, record, instant(record[pipeline.log.event_time]))
        lifted = combiner.lift(o, value, type_)
        held = [part.merged(o, a, b) for part, a, b in zip(parts, held, lifted, strict=True)]
    named = {part.name: term for part, term in zip(parts, held, strict=True)}
    return combiner.result(o, named, type_), combiner.why_null(o, named, type_)


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
