"""Apply the reference execution of a pipeline to the epochs of a stream, or to a complete input in one epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.stages import changes, watermark
from tailrace.model.step.step import Record, WindowsState, step
from tailrace.model.windows.panes import Late, Pane, Rejected


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


def prepared(pipeline: Pipeline, records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield a pair for each record that the definition's steps return: the log's record, and the returned record.

    Rejected records are left out.
    """
    for record in records:
        yield from ((record, one) for one in pipeline.prepared(record).records)


def at_once(pipeline: Pipeline, records: Sequence[Record], epoch: int = 0, now: int = 0) -> ReferenceRun:
    """Fold all records in one step, as a complete input. A backfill computes the same result (rule X4)."""
    return fold(pipeline, [(records, Clock(epoch, END_OF_TIME, now))])
