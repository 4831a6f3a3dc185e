"""Apply a changed definition: build a new generation next to the old one, and make it current in the tables.

The whole log is folded in a few large steps, while a stream of the old definition continues. Then the ledger's lease
(the right to write the ledger) is borrowed from the stream, the last epochs are folded, and the new generation becomes
current in the ledger and in the answers, each in one commit that moves no data (`lake.change.generations`). The lease
is borrowed for about two seconds. Writing new records to the log never waits for these commits. When the new generation
becomes current, the stream of the old definition drops the epoch that it is folding. `rollback` makes a former
generation current again in the same way.

If two runs apply definitions at the same time, the run that started later continues and removes the tables that the
other run has built. The other run gives way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tailrace.engines.choose import EngineChoice
from tailrace.engines.spark.session import open_session
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.stored_meaning import MEANING, holds, meaning_properties
from tailrace.lake.change.generations import (
    BUILT,
    FROM,
    GENERATION,
    Contents,
    chain_refusal_reason,
    former_generations,
    generation_of,
    generations_beside,
    go_over,
    make_beside,
    name_beside,
    refusal_reason,
    settle,
    stages_to_build,
    sweep,
    tag_of,
)
from tailrace.lake.commit.epoch_properties import ONWARD, last_epoch
from tailrace.lake.commit.lease import HOLDING, TOKEN, TRIES, Lease, borrow_lease
from tailrace.lake.commit.runs_table import BACK, Runs
from tailrace.lake.schema.lake_errors import FencedError, MovedError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.chain import chain, renamed
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import log_names

NEAR = 2
"""The maximum number of epochs by which a new generation may be behind the log when the lease is borrowed."""

ROUNDS = 8
"""The maximum number of rounds in which a new generation catches up with the log before the lease is borrowed.

The number of rounds is limited because the log may grow as fast as it is folded.
"""

Doing = Callable[[str], None]

T = TypeVar("T")


class ApplyError(TailraceError, RuntimeError):
    """Raised if a definition cannot be applied, or if a generation cannot be restored.

    When this error is raised, no table has been changed.
    """


@dataclass(frozen=True)
class Changeover:
    """The result of making another generation current: the run, and the last epoch that was folded.

    `run` is None if the definition was already in use. `left` is the number of the replaced generation. `seconds` is
    the total time, and `lent` is the time for which the lease was borrowed, in seconds. `gave_way` is the later run to
    which this run gave way. `engine` is the engine that folded the log, or None if nothing was folded.
    """

    run: Run | None
    left: int
    epoch: int
    seconds: float = 0.0
    lent: float = 0.0
    gave_way: Run | None = None
    engine: EngineChoice | None = None


class _GaveWayError(Exception):
    """Raised if this run must give way, because a run with a higher generation has committed or is in progress."""

    def __init__(self, above: Run) -> None:
        self.above = above


def apply(
    lake: Lake,
    pipeline: Pipeline,
    *,
    reason: str | None = None,
    doing: Doing = lambda text: None,
) -> Changeover:
    """Build the generation of a changed definition next to the old generation, and make the new generation current.

    The log is folded in this process, without Spark, as long as there is enough memory; otherwise Spark is started. If
    the lake already uses the definition, only the tables that an earlier run has left behind are removed. Raises
    `ApplyError` if the definition cannot be applied.
    """
    if (why := refusal_reason(lake, pipeline)) is not None:
        raise ApplyError(why)
    # An earlier run may have crashed after the first of its two commits, so complete the earlier run's second commit.
    settle(lake, pipeline.name)
    if holds(lake, pipeline):
        return _nothing_to_do(lake, pipeline)
    (done,) = _applied(lake, [pipeline], reason, doing)
    return done


def apply_stages(
    lake: Lake,
    definition: Definition,
    *,
    reason: str | None = None,
    doing: Doing = lambda text: None,
) -> dict[str, Changeover]:
    """Build a generation of all stages of a definition that have changed, and of all stages that read one of them.

    The stages are all definitions that the definition reads, and the definition itself. The new generations are built
    from the logs, one from the other, next to the old generations. They become current under the leases of all their
    ledgers, the last stage first: if this process dies in between, the first changed stage still has its old
    generation, so the next call builds all of them again. Returns the result for each stage, by its name. Raises
    `ApplyError` if a stage cannot be built.
    """
    stages = chain(definition)
    for stage in stages:
        if lake.has(ledger_name(stage.name)):
            settle(lake, stage.name)
    building = stages_to_build(lake, stages)
    if (why := chain_refusal_reason(lake, building)) is not None:
        raise ApplyError(why)
    kept = {stage.name: _nothing_to_do(lake, stage) for stage in stages if stage not in building and stage.recomputable}
    done = _applied(lake, building, reason, doing) if building else []
    return kept | {stage.name: one for stage, one in zip(building, done, strict=True)}


def _nothing_to_do(lake: Lake, definition: Definition) -> Changeover:
    """Remove what an earlier run has left behind of a definition whose meaning the lake already holds."""
    _sweep(lake, definition.name)
    ledger = lake.table(ledger_name(definition.name))
    _complete(Runs(lake, definition), generation := generation_of(ledger))
    return Changeover(None, generation, head_of(ledger).number("epoch"))


def _applied(lake: Lake, stages: Sequence[Definition], reason: str | None, doing: Doing) -> list[Changeover]:
    """Build a generation of some stages, and make it current; return the result for each stage."""
    started, epoch, names = time.perf_counter(), _log_epoch(lake, stages), ", ".join(stage.name for stage in stages)
    building: list[_Stage] = []
    for stage in stages:
        runs = Runs(lake, stage)
        run = runs.start("apply", BEGINNING, END_OF_TIME, log_epoch=epoch, reason=reason)
        building.append(_Stage(lake, stage, runs, run))
    try:
        for one in building:
            for other in one.runs.all():
                if other.kind == "apply" and other.status == "started" and other.generation < one.run.generation:
                    note = f"generation {one.run.generation} (run {one.run.run}) began"
                    one.runs.note(other, status="gave_way", reason=note)
            _sweep(lake, one.definition.name)
        built = _Generation(lake, building)
        doing(f"building generation {', '.join(str(one.run.generation) for one in building)} of {names} beside")
        built.build(doing)
        for one in building:
            one.run = one.runs.note(one.run, log_epoch=built.epoch)
        doing(f"the new generation of {names} takes over")
        before, lent = built.take_over()
        for one in building:
            _sweep(lake, one.definition.name)
            one.run = one.runs.note(one.run, status="committed", log_epoch=built.epoch, engine=str(built.engine))
        took = time.perf_counter() - started
        return [
            Changeover(one.run, before[one.definition.name], built.epoch, took, lent, engine=built.engine)
            for one in building
        ]
    except Exception as error:
        later = (_find_later(one.runs, one.run) for one in building)
        above = error.above if isinstance(error, _GaveWayError) else next(filter(None, later), None)
        if above is not None:
            note, took = f"generation {above.generation} (run {above.run}) began", time.perf_counter() - started
            noted = [one.runs.note(one.run, status="gave_way", reason=note) for one in building]
            return [Changeover(run, 0, run.log_epoch or -1, took, gave_way=above) for run in noted]
        for one in building:
            one.runs.record_failure(one.run, error)
        raise


def rollback(lake: Lake, pipeline: Pipeline, to: int | None = None, *, reason: str | None = None) -> Changeover:
    """Make a former generation current again (by default, the last former generation), without computing anything.

    A stream of that generation's definition then folds the later epochs from the log. The state continues in a new
    generation, with a higher number than all earlier generations (rule V2). The function uses only the name of
    `pipeline`, not the rest of the definition. Raises `ApplyError` if there is no such generation, or if a later stage
    reads the pipeline's panes.
    """
    name, table = pipeline.name, ledger_name(pipeline.name)
    if not lake.has(table):
        raise ApplyError(f"there is no table {table}, so nothing to go back to")
    settle(lake, name)
    if ONWARD in lake.head(table).properties:
        raise ApplyError(f"a later stage reads the panes of {name}, and would have two generations of them mixed")
    there = former_generations(lake.table(table))
    to = max(there, default=None) if to is None else to
    if to is None or to not in there:
        choices = f"those that it left are {', '.join(map(str, there))}" if there else "it has left none"
        raise ApplyError(f"{name} has no generation {'' if to is None else f'{to} '}to go back to: {choices}")
    started, runs = time.perf_counter(), Runs(lake, pipeline)
    properties = head_of(lake.table(table), tag_of(to)).properties
    note = f"{BACK} {to}" + (f": {reason}" if reason else "")
    run = runs.start("rollback", BEGINNING, END_OF_TIME, log_epoch=int(properties["epoch"]), reason=note)
    run = runs.note(run, fingerprint=properties["fingerprint"])
    try:
        own = [(table, run)]
        before, lent = _under_leases(lake, own, lambda leases: _go_back(lake, name, leases[table], run, to))
        settle(lake, name)
        _sweep(lake, name)
        for other in runs.all():
            # The rollback removes the results of the backfills that ran in the replaced generation, so change the
            # status of these backfills to `taken_back`.
            if other.kind == "backfill" and other.status == "committed" and other.generation > before:
                runs.note(other, status="taken_back", reason=f"generation {run.generation} went {note}")
        run = runs.note(run, status="committed")
        return Changeover(run, before, int(properties["epoch"]), time.perf_counter() - started, lent)
    except Exception as error:
        runs.record_failure(run, error)
        raise


class _Stage:
    """A stage of a new generation: its run, and the separate tables in which the stage is built.

    `shapes` are the shapes of the stage's own tables: for each table, the ids of the current schema, the last column,
    the default partition spec and the default sort order.
    """

    def __init__(self, lake: Lake, definition: Definition, runs: Runs, run: Run) -> None:
        self.lake, self.definition, self.runs, self.run = lake, definition, runs, run
        self.ledger, self.beside = ledger_name(definition.name), name_beside(definition.name, run.generation)
        self.answered = tables_of(definition).answers is not None and lake.has(definition.name)
        self.shapes = self.current_shapes()

    def current_shapes(self) -> list[tuple[int, int, int, int | None]]:
        names = [self.ledger, *([self.definition.name] if self.answered else [])]
        metadata = [self.lake.table(name).metadata for name in names]
        return [(m.current_schema_id, m.last_column_id, m.default_spec_id, m.default_sort_order_id) for m in metadata]

    def make_tables(self, renamed: Definition) -> None:
        """Create the separate tables; `renamed` is the definition under the name of these tables."""
        own = tables_of(self.definition)
        first = {"epoch": "-1", "generation": str(self.run.generation), "fingerprint": renamed.fingerprint}
        make_beside(self.lake, own.ledger, ledger_name(self.beside), first)
        if self.answered and own.answers is not None:
            make_beside(self.lake, own.answers, self.beside, {})


class _Generation:
    """A new generation of one or more stages, built in separate tables next to the tables of the current generation."""

    def __init__(self, lake: Lake, stages: Sequence[_Stage]) -> None:
        self.lake, self.stages = lake, stages
        made: dict[str, Definition] = {}
        for one in stages:
            made[one.definition.name] = renamed(one.definition, one.beside, made)
            one.make_tables(made[one.definition.name])
        names = "_".join(one.definition.name for one in stages)
        starting = partial(open_session, lake.settings, app=f"tailrace apply {names}")
        answered = [one.beside for one in stages if one.answered]
        self.folds = FoldGroup(starting, lake, list(made.values()), follow_every=1, alone=True, answered=answered)

    @property
    def epoch(self) -> int:
        return min(fold.epoch for fold in self.folds)

    @property
    def engine(self) -> EngineChoice:
        """The engine that folds the log into this generation; after the last fold, the engine of that fold."""
        return self.folds[-1].side.choice

    def build(self, doing: Doing) -> None:
        """Fold the log until at most `NEAR` epochs are missing, or until `ROUNDS` rounds are done."""
        definitions = [one.definition for one in self.stages]
        logs = {log.name: log for definition in definitions for log in definition.sources}
        for _ in range(ROUNDS):
            last = _log_epoch(self.lake, definitions)
            if last - self.epoch <= (NEAR if self.epoch >= 0 else 0):
                break
            doing(f"folding epochs {self.epoch + 1} to {last} of log {log_names(logs.values())}")
            self._leap(last)

    def take_over(self) -> tuple[dict[str, int], float]:
        """Make this generation the current generation.

        Returns a pair: the numbers of the replaced generations by stage, and for how many seconds the leases were
        borrowed.
        """
        found = _under_leases(self.lake, [(one.ledger, one.run) for one in self.stages], self._take_over)
        self.folds.close()
        for one in self.stages:
            settle(self.lake, one.definition.name)
        return found

    def _leap(self, last: int) -> None:
        self.folds.leap(last)
        for fold in self.folds:
            fold.follow_now()

    def _take_over(self, leases: Mapping[str, Lease]) -> dict[str, int]:
        for one in self.stages:
            above = one.runs.run_above(one.run) or _find_later(one.runs, one.run)
            if above is not None:
                raise _GaveWayError(above)
            if one.current_shapes() != one.shapes:
                # The new tables were created with the column ids from before the change. After the change, these ids
                # may belong to different columns, so the new tables cannot be used.
                raise ApplyError(
                    f"the tables of {one.definition.name} changed their shape while this was built: apply again"
                )
        self._leap(_log_epoch(self.lake, [one.definition for one in self.stages]))
        for lease in leases.values():
            lease.check()
        before: dict[str, int] = {}
        for one in reversed(self.stages):
            lease, beside = leases[one.ledger], self.lake.table(ledger_name(one.beside))
            own = {"fingerprint": one.definition.fingerprint, TOKEN: str(lease.token)}
            properties = {**head_of(beside).properties, **own}
            marks = {GENERATION: str(one.run.generation), FROM: one.beside, BUILT: properties["epoch"]}
            marks |= meaning_properties(one.definition)
            try:
                before[one.definition.name] = _switch(self.lake, lease, Contents.of(beside), properties, marks)
            except FencedError as error:
                if not before:
                    raise
                # Other stages already have the new generation. The next run builds all stages again.
                raise ApplyError(f"a stream took {one.ledger} while the stages went over: apply again") from error
        return before


def _go_back(lake: Lake, name: str, lease: Lease, run: Run, to: int) -> int:
    ledger, tag = lake.table(ledger_name(name)), tag_of(to)
    there = head_of(ledger, tag)
    properties = {key: value for key, value in there.properties.items() if key not in HOLDING}
    properties |= {TOKEN: str(lease.token), "generation": str(run.generation)}
    marks = {GENERATION: str(run.generation), FROM: tag}
    marks[MEANING] = ledger.properties.get(f"{MEANING}.{tag}", "")
    return _switch(lake, lease, Contents.of(ledger, there.snapshot), properties, marks)


def _switch(lake: Lake, lease: Lease, held: Contents, properties: dict[str, str], marks: dict[str, str]) -> int:
    """Make another generation current in the ledger, whose lease is borrowed; return the replaced generation's number.

    A backfill of closed windows takes no lease and may therefore commit in the meantime. The rows of such a backfill
    stay in the replaced generation.
    """
    while True:
        ledger = lake.table(lease.table)
        lease.check()
        before = generation_of(ledger)
        meant = {f"{MEANING}.{tag_of(before)}": ledger.properties[MEANING]} if MEANING in ledger.properties else {}
        try:
            go_over(ledger, held, properties, marks | meant, before)
            return before
        except MovedError:
            continue


def _under_leases(
    lake: Lake, tables: Sequence[tuple[str, Run]], work: Callable[[Mapping[str, Lease]], T]
) -> tuple[T, float]:
    """Borrow the leases of ledgers at an epoch boundary and call `work`; return its result and its duration in seconds.

    `tables` has the ledgers, each with the run that borrows its lease. If a stream takes a lease meanwhile, the work is
    repeated.
    """
    for left in reversed(range(TRIES)):
        with ExitStack() as borrowed:
            leases = {table: borrowed.enter_context(borrow_lease(lake, table, run.run)) for table, run in tables}
            since = time.perf_counter()
            try:
                return work(leases), time.perf_counter() - since
            except FencedError:
                if not left:
                    raise
    raise AssertionError("the last try returns or raises")


def _sweep(lake: Lake, name: str) -> None:
    """Remove the tables that an earlier run has left behind.

    The tables are removed while the ledger's lease is borrowed, so that no other run can make the contents of these
    tables current.
    """
    if not generations_beside(lake, name):
        return
    with borrow_lease(lake, ledger_name(name), "sweep"):
        settle(lake, name)
        sweep(lake, name)


def _complete(runs: Runs, generation: int) -> None:
    """Record a run as committed if the run made its generation current and crashed before its status was recorded."""
    for other in runs.all():
        if other.generation == generation and other.kind in ("apply", "rollback") and other.status == "started":
            runs.note(other, status="committed")


def _find_later(runs: Runs, run: Run) -> Run | None:
    """Return a later run that applies a definition and has not failed, or None if there is no such run."""
    for other in runs.all():
        if other.kind == "apply" and other.generation > run.generation and other.status in ("started", "committed"):
            return other
    return None


def _log_epoch(lake: Lake, stages: Sequence[Definition]) -> int:
    """Return the last epoch that is in all logs of some stages, and in the ledgers of all definitions that they read.

    The ledgers of the stages themselves are left out.
    """
    own = {stage.name for stage in stages}
    earlier = {one.name for stage in stages for one in stage.before} - own
    read = (lake.head(ledger_name(name)).number("epoch") for name in sorted(earlier))
    return min([last_epoch(lake, [log for stage in stages for log in stage.sources]), *read])
