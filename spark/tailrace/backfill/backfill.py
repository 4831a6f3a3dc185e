"""Backfills: recompute a range from all records in the log, and replace only the rows that differ (V4).

Each session computes a group of definitions: a map, a join, or a pipeline with its stages. The kind of the group
determines which tables must be read for a range and which runs the range needs (`backfill_of`). A run reads the log up
to the ledger's epoch at the run's start. The run computes the windows whose timestamp is in the range, or the rows
whose event time is in the range (V5), and writes the rows that differ (`range_run`). The written rows get a separate
generation in the ledger, and a stream may continue to run at the same time.
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
"""A list with one pair for each stage, in the order of the stages: the stage, and the results of the stage's runs."""

_Done = dict[str, tuple[Ranged, list[Backfilled]]]
"""A dict from the name of each stage to the stage and the results of its runs."""


@singledispatch
def backfill_of(definition: object, lake: Lake, first: int, last: int, **how: bool) -> RangeBackfill[Any]:
    """Create the backfill of a range. The class of the backfill depends on the kind of the definition.

    `how` has the options of `RangeBackfill`.
    """
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
    """Recompute the range `[first, last)` of one stage alone, without the stages before it.

    `first` and `last` are window timestamps or, for maps and joins, event times, in microseconds. One run recomputes
    the closed windows of the range, and a second run recomputes the windows that a stream can still change. If there
    are no windows of one kind, the run for this kind is left out. A dry run reports what would change and changes
    nothing. Raises `BackfillError` if the range is empty or cannot be computed, and `OtherDefinitionError` if the
    tables belong to another definition.
    """
    ((_, runs),) = backfill_stages(lake, definition, first, last, reason=reason, dry_run=dry_run, alone=True)
    return runs


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
    alone: bool = False,
) -> OfStages:
    """Backfill all pipelines, joins and maps that a definition reads, in order, and then the definition itself.

    The answers of a pipeline's stages are computed once, from the log. A definition that reads a join or a map is
    computed from the current rows in the ledger of that join or map. If any stage cannot be backfilled, no stage is
    changed. The range of an earlier stage starts early enough to include all windows that the next stage needs for its
    range. So each stage is computed from the answers that the previous stage has after the previous stage's run. Open
    windows of a later stage are computed from the previous stage's answers that the later stage has already read. In
    the stream's next epoch, the later stage's open windows receive the corrections of the previous stage's open windows
    (X4). `corrections.stages_behind` finds windows outside of the range that lack a correction. Computations are not
    backfilled.

    `begun` is called with each session before anything is computed in the session. If DuckDB runs out of memory or disk
    space, Spark takes over; if `spark` is False, a `RoomError` is raised instead. If `alone` is True, only the
    definition itself is backfilled, as by `backfill`.
    """
    groups = [definition] if alone else _groups(definition)

    def of_group(lake: Lake, group: Ranged) -> RangeBackfill[Any]:
        return backfill_of(group, lake, first, last, asked=group.name == definition.name, alone=alone)

    for group in groups:
        of_group(lake, group).check()
    inputs, done = RunInputs(lake, definition), _Done()

    def compute(group: Ranged, found: _Done, lake: Lake) -> None:
        """Open a session for a group, and execute the group's runs.

        The definition and the amount of its data determine the session's engine. Each run is added to `found` and
        `inputs` when it ends. If the engine runs out of memory or disk space before all runs have ended, `found` has
        the runs that are already committed.
        """
        if dry_run:
            # This may be a second attempt, on another engine. The first attempt of a dry run has committed nothing, so
            # its results are dropped.
            found.clear()
        part = of_group(lake, with_set_aside(lake, group))
        with session_for(lake, part.definition, "backfill", part.reads()) as session:
            begun(session)
            for stage, runs in part.runs(session):
                _, ended = found.setdefault(stage.name, (stage, []))
                for one in runs:
                    ended.append(one.run(reason, dry_run, inputs.of(stage)))
                    inputs.add(stage, [ended[-1].run])

    for group in groups:
        found = _Done()
        computing = partial(compute, group, found)
        run_with_fallback(lake, computing) if spark else computing(lake)
        for name, (stage, runs) in found.items():
            # If two definitions read a stage, the stage is computed twice, and the second run finds no differences.
            done.setdefault(name, (stage, []))[1].extend(runs)
    return list(done.values())


def engine_for(lake: Lake, definition: Ranged, first: int, last: int) -> EngineChoice:
    """Return the engine with which `backfill_stages` would compute a range: Spark if any of the stages needs Spark.

    Raises the same errors as `backfill_stages` if the range or the tables are not valid.
    """
    groups = [backfill_of(group, lake, first, last, asked=group is definition) for group in _groups(definition)]
    for group in groups:
        group.check()
    chosen = [choice_for(lake, group.definition, group.reads())[0] for group in groups]
    return next((one for one in chosen if one.engine is not Engine.DUCKDB), chosen[-1])


def _groups(definition: Ranged) -> list[Ranged]:
    """List the groups to backfill, in order: maps, joins, and the last stages of pipelines.

    Each group is backfilled in one session.
    """
    found: list[Any] = []

    def visit(one: Definition) -> None:
        for direct in one.stages[0].before:
            visit(direct)
        if one.recomputable and one not in found:
            found.append(one)

    visit(definition)
    return found
