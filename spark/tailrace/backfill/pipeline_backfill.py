"""A backfill: one step over everything that the log holds for a range, replacing the range by a minimal diff (V4).

It pins the log at the ledger's epoch, computes the answers of the windows whose timestamp lies in the range (V5), and
writes what differs from the current answers: a changed window is retracted and fired again, a window that is not
produced any more is retracted, a window that comes out equal is left untouched. The rows go into the ledger in a
generation of their own beside a running stream, and the answers follow the ledger. Windows that a stream can still
reach are computed by a second run, which borrows the stream's lease (`handover`, X4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from tailrace.backfill import join_backfill, map_backfill
from tailrace.backfill.handover import Handover, check_followers
from tailrace.backfill.join_backfill import backfill_join
from tailrace.backfill.map_backfill import backfill_map
from tailrace.backfill.range_run import ClosedRun, WindowsRun, folded_head
from tailrace.backfill.result import Backfilled, BackfillError, Found, as_of
from tailrace.backfill.shared_answers import Shared
from tailrace.engines.batch import log_records
from tailrace.engines.batch.held_answers import held
from tailrace.engines.batch.run_engine import choice_for, here_first, session_for
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.change.widening import widen
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.run_inputs import SeenRuns, seen_by_now
from tailrace.lake.read.current_answers import held_by
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.lake.schema.filters import Filter, after, every, up_to
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, text
from tailrace.model.definition.chain import Definition, Ranged, chain
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.window_spans import windows_between
from tailrace.sql.results.answers import current, differences, events_from, events_in, events_until, in_range, new
from tailrace.sql.results.backfill_rows import pane_rows
from tailrace.sql.terms import Condition

__all__ = ["BackfillError", "Backfilled", "backfill", "backfill_stages", "engine_for"]


def backfill(
    lake: Lake,
    pipeline: Ranged,
    first: int,
    last: int = END_OF_TIME,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> list[Backfilled]:
    """Recompute the range `[first, last)` of window timestamps of one stage, in microseconds.

    The closed windows of the range are one run, and the windows that a stream can still reach are another; a run with
    no window is left out. A dry run says what would change and changes nothing. Raises `BackfillError` for a range that
    is empty or cannot be computed, and `OtherDefinitionError` where the tables are another definition's.
    """
    _check(lake, pipeline, first, last)
    seen = _Seen(lake, pipeline).of(pipeline)
    pipeline = with_set_aside(lake, pipeline)

    def run(lake: Lake) -> list[Backfilled]:
        if isinstance(pipeline, Join):
            return backfill_join(lake, pipeline, first, last, seen, reason=reason, dry_run=dry_run)
        if isinstance(pipeline, Map):
            return backfill_map(lake, pipeline, first, last, seen, reason=reason, dry_run=dry_run)
        closed = pipeline.closed_until(folded_head(lake, pipeline).number("watermark"))
        if pipeline.earlier is not None and last > closed:
            raise BackfillError(
                f"windows up to {text(last)} are still open to the stream, and hold what {pipeline.name} has read of "
                f"{pipeline.earlier.name}: backfill all stages, or pass a --to of at most {text(closed)}"
            )
        with _opened(lake, pipeline, first, last) as (session, shared):
            return [part.run(reason, dry_run, seen) for part in _parts(session, pipeline, first, last, shared)]

    return here_first(lake, run)


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
) -> Sequence[tuple[Ranged, list[Backfilled]]]:
    """Backfill a definition after everything that it reads, in order: pipelines, joins and maps.

    The answers of a pipeline's stages are computed once, from the log; what reads a join or a map is computed from the
    rows that stand of it. If one stage cannot be backfilled, none is changed. A stage of a pipeline has the range from
    where the windows of the next one begin that belong to its own range. So each stage is made of what the stage before
    it says after the run. Open windows of a later stage are computed of what the stage has read; what is corrected of
    the stage before while that is open, they get with the stream's next epoch (X4). Windows that lack a correction
    because they belong to no part of the range are found by `corrections.stages_behind`. A computation is left alone.

    `begun` is called with each session before anything is computed in it. Where DuckDB runs out of room Spark takes
    over; without `spark` the caller gets a `RoomError` instead.
    """
    groups = _groups(definition)
    for stage in (stage for group in groups for stage in group.stages):
        _check(lake, stage, first, last)
    for stage in (stage for group in groups if isinstance(group, Pipeline) for stage in group.stages):
        if last > stage.closed_until(folded_head(lake, stage).number("watermark")):
            check_followers(lake, stage, last)
    seen, done = _Seen(lake, definition), dict[str, tuple[Ranged, list[Backfilled]]]()
    for group in groups:

        def run(lake: Lake, group: Ranged = group) -> list[tuple[Ranged, list[Backfilled]]]:
            asked, group = group is definition, with_set_aside(lake, group)
            if isinstance(group, Join):
                runs = backfill_join(
                    lake, group, first, last, seen.of(group),
                    reason=reason, dry_run=dry_run, begun=begun, must=asked,
                )  # fmt: skip
                return [(group, runs)]
            if isinstance(group, Map):
                runs = backfill_map(
                    lake, group, first, last, seen.of(group), reason=reason, dry_run=dry_run, begun=begun
                )
                return [(group, runs)]
            firsts = _firsts(group, first, last)
            with _opened(lake, group, min(firsts.values()), last) as (session, shared):
                begun(session)
                parts = [(stage, _parts(session, stage, firsts[stage.name], last, shared)) for stage in group.stages]
                found = list[tuple[Ranged, list[Backfilled]]]()
                for stage, own_parts in parts:
                    runs = [part.run(reason, dry_run, seen.of(stage)) for part in own_parts]
                    seen.made(stage, runs)
                    found.append((stage, runs))
                return found

        for stage, runs in here_first(lake, run) if spark else run(lake):
            seen.made(stage, runs)
            # A stage that is one of two readers' is there twice: the second time nothing of it is left to change.
            done[stage.name] = stage, [*done.get(stage.name, (stage, []))[1], *runs]
    return list(done.values())


def engine_for(lake: Lake, definition: Ranged, first: int, last: int) -> EngineChoice:
    """Choose the engine for a range, as `backfill_stages` does; Spark where any of the stages is computed by it.

    Raises the errors of `backfill_stages` for the range and the tables.
    """
    chosen = list[EngineChoice]()
    for group in _groups(definition):
        _check(lake, group, first, last)
        chosen.append(choice_for(lake, group, _read(lake, group, first, last))[0])
    return next((one for one in chosen if one.engine is not Engine.DUCKDB), chosen[-1])


def _groups(definition: Ranged) -> list[Ranged]:
    """List what is backfilled in one session each, in order: joins, maps, and the last of the stages of a pipeline."""
    found: list[Ranged] = []

    def visit(one: Definition) -> None:
        for direct in (one.stages[0] if isinstance(one, Pipeline) else one).before:
            visit(direct)
        if isinstance(one, Ranged) and one not in found:
            found.append(one)

    visit(definition)
    return found


class _Seen:
    """The runs that each stage's run has seen of what it reads: those before the backfill, and the backfill's own."""

    def __init__(self, lake: Lake, definition: Ranged) -> None:
        self._runs = seen_by_now(lake, definition)

    def of(self, stage: Ranged) -> dict[str, SeenRuns]:
        """Return the runs of everything that a stage reads."""
        names = {one.name for one in chain(stage)[:-1]}
        return {name: runs for name, runs in self._runs.items() if name in names}

    def made(self, stage: Ranged, runs: Sequence[Backfilled]) -> None:
        """Add the runs that the backfill has made of a stage."""
        committed = [one.run.generation for one in runs if one.run.status == "committed"]
        self._runs[stage.name] = self._runs.get(stage.name, SeenRuns()).and_of(committed)


@contextmanager
def _opened(lake: Lake, pipeline: Pipeline, first: int, last: int) -> Iterator[tuple[Session, Shared]]:
    """Open a session on the engine that fits the log's records of a range, with the shared answers of the stages."""
    with (
        session_for(lake, pipeline, "backfill", _read(lake, pipeline, first, last)) as session,
        closing(Shared(session, pipeline, first, last)) as shared,
    ):
        yield session, shared


def _read(lake: Lake, pipeline: Ranged, first: int, last: int) -> list[tuple[str, Filter]]:
    """Return the tables that a range reads, each with the filter of the files that hold its records."""
    if isinstance(pipeline, Join):
        return join_backfill.read(lake, pipeline, first, last)
    if isinstance(pipeline, Map):
        return map_backfill.read(lake, pipeline, first, last)
    since, until = events_from(pipeline, first), events_until(pipeline, last)
    epoch = lake.head(ledger_name(pipeline.name)).number("epoch")
    return log_records.read(lake, pipeline.stages[0].log, epoch, since, until)


def _check(lake: Lake, pipeline: Ranged, first: int, last: int) -> None:
    if first >= last:
        raise BackfillError(f"the range from {text(first)} to {text(last)} is empty: pass a --to later than --from")
    widen(lake, pipeline)


def _firsts(pipeline: Pipeline, first: int, last: int) -> dict[str, int]:
    """Find where the range begins for each stage: where the windows begin that a later stage has in its range."""
    found = dict[str, int]()
    for stage in reversed(pipeline.stages):
        found[stage.name] = first
        if stage.earlier is not None and windows_between(stage.where, first, last):
            since = events_in(stage, first)
            first = BEGINNING if since is None else min(first, max(BEGINNING, since))
    return found


def _parts(session: Session, pipeline: Pipeline, first: int, last: int, shared: Shared) -> list[_Closed | Handover]:
    """Return the runs that a range takes, checked but not begun."""
    pinned = folded_head(session.lake, pipeline)
    closed = pipeline.closed_until(pinned.number("watermark"))
    parts: list[_Closed | Handover] = []
    if first < closed:
        parts.append(_Closed(session, pipeline, first, min(last, closed), pinned, shared))
    if last > closed:
        parts.append(Handover(session, pipeline, max(first, closed), last, closed))
    return parts


class _Closed(ClosedRun, WindowsRun):
    """The run of windows that no stream can reach any more."""

    def __init__(
        self, session: Session, pipeline: Pipeline, first: int, last: int, pinned: Head, shared: Shared
    ) -> None:
        super().__init__(session, pipeline, first, last)
        self.pinned, self.shared = pinned, shared

    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        self.session.write(pane_rows(self.pipeline, found.different, as_of(run, pinned)), branch, properties)

    def published(self, found: Found, snapshot: int) -> None:
        self.follower.follow(fresh=None if found.counts["held"] else snapshot)

    def _computed(self, epoch: int) -> Found:
        finished = self.pipeline.finished
        answers = self.shared.answers(self.pipeline, epoch, self.first, self.last)
        if self._anything_held():
            table = held(self.session, self.pipeline, self._within)
            within = in_range(self.first, self.last)
            text_ = differences(finished, answers, current(self.pipeline, table, within))
        else:
            text_ = new(finished, answers)
        counted = self.session.counted(
            text_,
            {
                "changed": Condition("change IN ('changed', 'new')"),
                "untouched": Condition("change = 'same'"),
                "retracted": Condition("change = 'gone'"),
                "held": Condition("change <> 'new'"),
            },
        )
        return Found(counted.relation, counted.counts)

    @property
    def _within(self) -> Filter:
        """The filter of the answers whose windows are in the range."""
        first, last = (max(BEGINNING, min(at, END_OF_TIME)) for at in (self.first, self.last))
        return every(after("window_end", first), up_to("window_end", last))

    def _anything_held(self) -> bool:
        """Tell whether there may be answers of the range, by their files' statistics."""
        table, within = held_by(self.lake, self.pipeline, self._within)
        return any(True for _ in self.lake.table(table).scan(row_filter=within).plan_files())
