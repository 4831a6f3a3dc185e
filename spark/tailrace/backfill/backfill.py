"""A backfill: compute a range from everything that the log holds for it, and replace only the rows that differ (V4).

One session computes a group: a map, a join, or a pipeline with its stages. The kind of the group determines which
tables a range reads and which runs it needs (`backfill_of`). A run pins the log at the ledger's epoch, computes the
windows whose timestamp is in the range or the rows whose event time is in the range (V5), and writes the rows that
differ (`range_run`). The written rows get a separate generation in the ledger, while a stream may continue to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any, TypeAlias

from tailrace.backfill.join_backfill import JoinBackfill
from tailrace.backfill.map_backfill import MapBackfill
from tailrace.backfill.pipeline_backfill import PipelineBackfill
from tailrace.backfill.range_run import RangeBackfill
from tailrace.backfill.result import Backfilled
from tailrace.engines.batch.run_engine import choice_for, run_with_fallback, session_for
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.run_inputs import RunInputs
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.definition import Definition, KindError, Ranged
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline

OfStages: TypeAlias = Sequence[tuple[Ranged, list[Backfilled]]]
"""For each stage, in order, the stage and the results of its runs."""

_Done = dict[str, tuple[Ranged, list[Backfilled]]]
"""The stages with the results of their runs, by the stage's name."""


@singledispatch
def backfill_of(definition: object, lake: Lake, first: int, last: int, **how: bool) -> RangeBackfill[Any]:
    """Return the backfill of a range for this kind of definition; `how` has the options of `RangeBackfill`."""
    raise KindError("backfill", definition)


backfill_of.register(Pipeline, PipelineBackfill)
backfill_of.register(Map, MapBackfill)
backfill_of.register(Join, JoinBackfill)


def backfill(
    lake: Lake,
    definition: Ranged,
    first: int,
    last: int = END_OF_TIME,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> list[Backfilled]:
    """Recompute the range `[first, last)` of one stage alone, in microseconds of window timestamps or event time.

    The closed windows of the range are one run, and the windows that a stream can still reach are a second run; a run
    without windows is left out. A dry run reports what would change and changes nothing. Raises `BackfillError` if the
    range is empty or cannot be computed, and `OtherDefinitionError` if the tables belong to another definition.
    """
    backfill_of(definition, lake, first, last, alone=True).check()
    done, inputs = _Done(), RunInputs(lake, definition)
    run_with_fallback(lake, partial(_compute, done, definition, first, last, inputs, reason, dry_run, alone=True))
    return done[definition.name][1]


def backfill_stages(
    lake: Lake,
    definition: Ranged,
    first: int,
    last: int = END_OF_TIME,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    begun: Callable[[Session], None] = lambda session: None,
    spark: bool = True,
) -> OfStages:
    """Backfill a definition after all pipelines, joins and maps that it reads, in order.

    The answers of a pipeline's stages are computed once, from the log. A definition that reads a join or a map is
    computed from the current rows of that definition's ledger. If any stage cannot be backfilled, no stage is changed.
    The range of an earlier stage starts early enough to include all windows that the next stage needs for its range, so
    each stage is computed from the answers that the previous stage has after the run. Open windows of a later stage are
    computed from the answers that the stage has read. With the stream's next epoch, these windows receive the
    corrections of the previous stage's open windows (X4). `corrections.stages_behind` finds windows outside of the
    range that lack a correction. A computation is not backfilled.

    `begun` is called with each session before anything is computed in the session. If DuckDB runs out of room, Spark
    takes over; if `spark` is False, a `RoomError` is raised instead.
    """
    groups = _groups(definition)
    for group in groups:
        backfill_of(group, lake, first, last, asked=group is definition).check()
    inputs, done = RunInputs(lake, definition), _Done()
    for group in groups:
        found, asked = _Done(), group is definition
        compute = partial(_compute, found, group, first, last, inputs, reason, dry_run, begun=begun, asked=asked)
        run_with_fallback(lake, compute) if spark else compute(lake)
        for name, (stage, runs) in found.items():
            # A stage with two readers is computed twice: the second time nothing is left to change.
            done.setdefault(name, (stage, []))[1].extend(runs)
    return list(done.values())


def engine_for(lake: Lake, definition: Ranged, first: int, last: int) -> EngineChoice:
    """Return the engine that `backfill_stages` would use for a range: Spark if any of the stages needs Spark.

    Raises the errors of `backfill_stages` for the range and the tables.
    """
    groups = [backfill_of(group, lake, first, last, asked=group is definition) for group in _groups(definition)]
    for group in groups:
        group.check()
    chosen = [choice_for(lake, group.definition, group.reads())[0] for group in groups]
    return next((one for one in chosen if one.engine is not Engine.DUCKDB), chosen[-1])


def _groups(definition: Ranged) -> list[Ranged]:
    """List the groups (maps, joins, and last stages of pipelines) in order; each group is backfilled in one session."""
    found: list[Any] = []

    def visit(one: Definition) -> None:
        for direct in one.stages[0].before:
            visit(direct)
        if one.recomputable and one not in found:
            found.append(one)

    visit(definition)
    return found


def _compute(
    done: _Done,
    group: Ranged,
    first: int,
    last: int,
    inputs: RunInputs,
    reason: str | None,
    dry_run: bool,
    lake: Lake,
    *,
    begun: Callable[[Session], None] = lambda session: None,
    **how: bool,
) -> None:
    """Open the engine that fits a group's records, and do its runs; add each run to `done` and `inputs` as it ends.

    If the engine has no room in the middle of a group, `done` has the runs that are committed already.
    """
    if dry_run:
        # Nothing of an earlier attempt is committed.
        done.clear()
    part = backfill_of(with_set_aside(lake, group), lake, first, last, **how)
    with session_for(lake, part.definition, "backfill", part.reads()) as session:
        begun(session)
        for stage, runs in part.runs(session):
            _, ended = done.setdefault(stage.name, (stage, []))
            for one in runs:
                ended.append(one.run(reason, dry_run, inputs.of(stage)))
                inputs.add(stage, [ended[-1].run])
