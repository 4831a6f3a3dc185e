"""The reference execution for a chain of pipelines, computations, maps and joins.

One call of `fold_chain` folds all epochs of the input. A definition reads the records of its log: a source's records, a
pipeline's panes, or the output of a computation, a map or a join. In each epoch, the definitions are folded one after
the other. A definition uses the watermark that the preceding definition passes on (rule T3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tailrace.model.base.clock import Clock
from tailrace.model.definition import map as maps
from tailrace.model.definition.chain import chain
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map, Mapped
from tailrace.model.definition.once import Claims, Once
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import Log
from tailrace.model.step import computation_state, computation_step, join_step, stages
from tailrace.model.step.computation_state import Production
from tailrace.model.step.join_step import Joined, JoinState, LateKept
from tailrace.model.step.step import Record, WindowsState, step
from tailrace.model.windows.panes import Late, Pane, Rejected


@dataclass(frozen=True)
class Passing:
    """The state of a map between two epochs, which consists only of the clock."""

    clock: Clock | None = None


@dataclass
class ChainRun:
    """The accumulated result of folding epochs into one definition.

    `late` contains the late records of a pipeline or a computation, and `late_for_join` contains the late records of a
    join.

    `claimed` contains the productions that readers do not receive, because their ids were already claimed. Either
    another computation has claimed the id in the registry, or this computation has already counted the id (`claims`).
    """

    state: WindowsState | computation_state.KeysState | JoinState | Passing
    panes: list[Pane] = field(default_factory=list)
    productions: list[Production] = field(default_factory=list)
    mapped: list[Mapped] = field(default_factory=list)
    joined: list[Joined] = field(default_factory=list)
    late: list[Late | computation_state.LateInput] = field(default_factory=list)
    late_for_join: list[LateKept] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    work: list[computation_state.Work] = field(default_factory=list)
    claims: Claims = field(default_factory=Claims)
    claimed: list[Production] = field(default_factory=list)


Input: TypeAlias = "tuple[Sequence[Record], Clock]"
"""The input of one epoch from one log: the records and the clock."""


def fold_chain(
    definition: Definition, epochs: Iterable[Input | Mapping[str, Input]], runs: Sequence[ChainRun] = ()
) -> list[ChainRun]:
    """Fold epochs into every definition of a chain.

    To continue an earlier fold, pass its results as `runs`. An epoch is a bundle of records and a clock. If the chain
    reads several logs, an epoch maps the name of each log to a bundle and a clock.

    >>> from tailrace.model.samples.visits import clicks, example
    >>> run = fold_chain(example(), [(clicks("a 0, a 5"), Clock(0, 0, 0)), ([], Clock(1, 10**9, 0))])[-1]
    >>> [(one.key, dict(one.values)) for one in run.productions]
    [(('a',), {'clicks': 2})]
    """
    whole = chain(definition)
    found = list(runs) or [ChainRun(_nothing(one)) for one in whole]
    for epoch in epochs:
        passed = dict(epoch) if isinstance(epoch, Mapping) else {log.name: epoch for log in definition.sources}
        _passed(whole, found, passed)
    return found


def epochs_read(definition: Definition, epochs: Iterable[Mapping[str, Input]]) -> list[Input]:
    """Return a definition's input epochs, which are computed by folding all preceding definitions of the chain.

    An epoch in `epochs` maps the name of each source log to the log's input.

    >>> from tailrace.model.samples.visits import clicks, example
    >>> epochs = [{"clicks": (clicks("a 0"), Clock(0, 7, 0))}]
    >>> [(len(records), clock.watermark) for records, clock in epochs_read(example(), epochs)]
    [(1, 7)]
    """
    *before, last = chain(definition)
    found, runs = list[Input](), [ChainRun(_nothing(one)) for one in before]
    for epoch in epochs:
        passed = _passed(before, runs, dict(epoch))
        found.append(_read_on(last.log, passed, found[-1][1] if found else None))
    return found


def fold_read(definition: Definition, epochs: Iterable[Input]) -> ChainRun:
    """Fold the input epochs of one definition, which `epochs_read` returns, into this definition."""
    run = ChainRun(_nothing(definition))
    for records, clock in epochs:
        _folded(definition, run, records, clock)
    return run


def _passed(definitions: Sequence[Definition], runs: Sequence[ChainRun], passed: dict[str, Input]) -> dict[str, Input]:
    """Fold one epoch into several definitions, one after the other.

    `passed` maps the name of each source log to its input in this epoch. The result also maps the name of each
    definition to the input that the definition's readers receive in this epoch.
    """
    for one, run in zip(definitions, runs, strict=True):
        records, clock = _read_on(one.log, passed, run.state.clock)
        made, watermark = _folded(one, run, records, clock)
        passed[one.name] = made, replace(clock, watermark=watermark)
    return passed


def _read_on(log: Log, passed: Mapping[str, Input], before: Clock | None) -> Input:
    """Return a log's input in this epoch for a reader whose last clock is `before`.

    If the log contains the output of another definition, the input's watermark is never lower than the watermark in
    `before`.
    """
    records, clock = _read(log, passed)
    if before is not None and not all(part.landed for part in log.parts):
        clock = replace(clock, watermark=max(clock.watermark, before.watermark))
    return records, clock


def _read(log: Log, passed: Mapping[str, Input]) -> Input:
    """Return a log's input in this epoch.

    For a union, the watermark is the lowest watermark of its logs, and the processing time is the latest processing
    time of its logs (rule T3).
    """
    if isinstance(log, Arrivals):
        records, clock = passed[log.of.name]
        now = clock.processing_time
        return list(log.records(records, now)), replace(clock, watermark=now)
    if not isinstance(log, Union):
        return passed[log.name]
    each = {member: passed[part.name] for member, part in log.members.items()}
    clocks = [clock for _, clock in each.values()]
    records = [record for member, (bundle, _) in each.items() for record in log.records(member, bundle)]
    signals = {name for clock in clocks for name in clock.signals}
    return records, Clock(
        clocks[0].epoch,
        min(clock.watermark for clock in clocks),
        max(clock.processing_time for clock in clocks),
        tuple(sorted(signals)),
    )


def _nothing(definition: Definition) -> WindowsState | computation_state.KeysState | JoinState | Passing:
    if isinstance(definition, Map | Join):
        return Passing() if isinstance(definition, Map) else JoinState()
    return WindowsState() if isinstance(definition, Pipeline) else computation_state.KeysState()


def _folded(definition: Definition, run: ChainRun, records: Sequence[Record], clock: Clock) -> tuple[list[Record], int]:
    """Fold one epoch into a definition's run; return the records and the watermark that the definition's readers
    receive.
    """
    if isinstance(definition, Pipeline):
        assert isinstance(run.state, WindowsState)
        run.state, panes, late, rejected = step(definition, run.state, records, clock)
        run.late += late
        run.panes += panes
        sent, watermark = stages.changes(definition, panes), stages.watermark(definition, run.state, None)
    elif isinstance(definition, Map):
        clock.after(run.state.clock)
        mapped, rejected = maps.step(definition, records, clock.epoch)
        run.mapped += mapped
        run.state = Passing(clock)
        sent, watermark = [maps.record_of(one) for one in mapped], clock.watermark
    elif isinstance(definition, Join):
        assert isinstance(run.state, JoinState)
        run.state, joined, late_for_join = join_step.step(definition, run.state, records, clock)
        run.joined += joined
        run.late_for_join += late_for_join
        rejected, watermark = [], definition.onward(clock.watermark)
        sent = [join_step.record_of(one) for one in joined]
    else:
        assert isinstance(definition, Computation)
        assert isinstance(run.state, computation_state.KeysState)
        run.state, productions, too_late, rejected, work = computation_step.step(definition, run.state, records, clock)
        run.late += too_late
        if definition.once is not None:
            made = [
                (one, computation_state.record_of(definition, one)) for one in computation_state.in_turn(productions)
            ]
            productions, left_out = divide_claimed(definition.once, definition.produced.columns, made, run.claims)
            run.claimed += left_out
        run.productions += productions
        run.work += work.values()
        sent = [computation_state.record_of(definition, one) for one in productions]
        watermark = computation_step.onward(definition, run.state)
    run.rejected += rejected
    return sent, watermark


def divide_claimed(
    once: Once, types: Mapping[str, str], productions: Iterable[tuple[Production, Mapping[str, Any]]], claims: Claims
) -> tuple[list[Production], list[Production]]:
    """Divide an epoch's productions into two lists: productions that count, and productions that were already claimed.

    Each production is passed together with its record. If several productions have the same id, only the first
    production in the input counts.
    """
    counting, left_out = list[Any](), list[Any]()
    for one, record in productions:
        found = once.id_of(record, one.at, types)
        (counting if found is None or claims.claim(found) else left_out).append(one)
    return counting, left_out
