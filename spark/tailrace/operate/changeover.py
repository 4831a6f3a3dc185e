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

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tailrace.engines.choose import EngineChoice
from tailrace.engines.spark.session import open_session
from tailrace.fold.fold_group import FoldGroup
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.stored_meaning import MEANING, holds
from tailrace.lake.change.generations import (
    FROM,
    GENERATION,
    Contents,
    former_generations,
    generation_of,
    generations_beside,
    go_over,
    make_beside,
    name_beside,
    refusal_reason,
    settle,
    sweep,
    tag_of,
)
from tailrace.lake.commit.epoch_properties import ONWARD, last_epoch
from tailrace.lake.commit.lease import HOLDING, TOKEN, Lease, borrow_lease, under_borrowed_lease
from tailrace.lake.commit.runs_table import BACK, Runs
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.fingerprint import encode_meaning
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import log_names

NEAR = 2
"""The maximum number of epochs by which a new generation may be behind the log when the lease is borrowed."""

ROUNDS = 8
"""The maximum number of rounds in which a new generation catches up with the log before the lease is borrowed.

The number of rounds is limited because the log may grow as fast as it is folded.
"""

Doing = Callable[[str], None]


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
    table = ledger_contract(pipeline).table
    runs = Runs(lake, pipeline)
    # An earlier run may have crashed after the first of its two commits, so complete the earlier run's second commit.
    settle(lake, pipeline.name)
    head = lake.head(table)
    if holds(lake, pipeline):
        _sweep(lake, pipeline.name)
        _complete(runs, generation := generation_of(lake.table(table)))
        return Changeover(None, generation, head.number("epoch"))
    started = time.perf_counter()
    run = runs.start("apply", BEGINNING, END_OF_TIME, log_epoch=_log_epoch(lake, pipeline), reason=reason)
    try:
        for other in runs.all():
            if other.kind == "apply" and other.status == "started" and other.generation < run.generation:
                runs.note(other, status="gave_way", reason=f"generation {run.generation} (run {run.run}) began")
        _sweep(lake, pipeline.name)
        built = _Generation(lake, pipeline, run)
        doing(f"building generation {run.generation} of {pipeline.name} beside")
        built.build(doing)
        run = runs.note(run, log_epoch=built.epoch)
        doing(f"generation {run.generation} takes over")
        before, lent = built.take_over(runs)
        _sweep(lake, pipeline.name)
        run = runs.note(run, status="committed", log_epoch=built.epoch, engine=str(built.engine))
        return Changeover(run, before, built.epoch, time.perf_counter() - started, lent, engine=built.engine)
    except Exception as error:
        above = error.above if isinstance(error, _GaveWayError) else _find_later(runs, run)
        if above is not None:
            run = runs.note(run, status="gave_way", reason=f"generation {above.generation} (run {above.run}) began")
            return Changeover(run, 0, run.log_epoch or -1, time.perf_counter() - started, gave_way=above)
        runs.record_failure(run, error)
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
        before, lent = _under_lease(lake, table, run, lambda lease: _go_back(lake, name, lease, run, to))
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


class _Generation:
    """A new generation of a definition, built in separate tables next to the tables of the current generation."""

    def __init__(self, lake: Lake, pipeline: Pipeline, run: Run) -> None:
        self.lake, self.pipeline, self.run = lake, pipeline, run
        self.table = ledger_contract(pipeline).table
        self.name = name_beside(pipeline.name, run.generation)
        first = {"epoch": "-1", "generation": str(run.generation), "fingerprint": pipeline.fingerprint}
        self.shapes = self._shapes()
        make_beside(lake, ledger_contract(pipeline), ledger_name(self.name), first)
        make_beside(lake, answer_contract(pipeline), self.name, {})
        starting = partial(open_session, lake.settings, app=f"tailrace apply {pipeline.name}")
        self.folds = FoldGroup(starting, lake, [_rename(pipeline, self.name)], follow_every=1, alone=True)

    @property
    def epoch(self) -> int:
        return self._fold.epoch

    @property
    def engine(self) -> EngineChoice:
        """The engine that folds the log into this generation; after the last fold, the engine of that fold."""
        return self._fold.side.choice

    @property
    def _fold(self) -> PipelineFold:
        fold = self.folds[0]
        assert isinstance(fold, PipelineFold)
        return fold

    def build(self, doing: Doing) -> None:
        """Fold the log until at most `NEAR` epochs are missing, or until `ROUNDS` rounds are done."""
        for _ in range(ROUNDS):
            last = _log_epoch(self.lake, self.pipeline)
            if last - self.epoch <= (NEAR if self.epoch >= 0 else 0):
                break
            doing(f"folding epochs {self.epoch + 1} to {last} of log {log_names(self.pipeline.sources)}")
            self.folds.leap(last)
            self._fold.follower.follow()

    def take_over(self, runs: Runs) -> tuple[int, float]:
        """Make this generation the current generation.

        Returns a pair: the number of the replaced generation, and for how many seconds the lease was borrowed.
        """
        before, lent = _under_lease(self.lake, self.table, self.run, lambda lease: self._take_over(lease, runs))
        self.folds.close()
        settle(self.lake, self.pipeline.name)
        return before, lent

    def _shapes(self) -> list[tuple[int, int, int, int | None]]:
        """Return the shape of the ledger table and the shape of the answers table.

        The shape of a table is a tuple of four ids: the current schema, the last column, the default partition spec and
        the default sort order.
        """
        metadata = [self.lake.table(name).metadata for name in (self.table, self.pipeline.name)]
        return [(m.current_schema_id, m.last_column_id, m.default_spec_id, m.default_sort_order_id) for m in metadata]

    def _take_over(self, lease: Lease, runs: Runs) -> int:
        above = runs.run_above(self.run) or _find_later(runs, self.run)
        if above is not None:
            raise _GaveWayError(above)
        if self._shapes() != self.shapes:
            # The new tables were created with the column ids from before the change. After the change, these ids may
            # belong to different columns, so the new tables cannot be used.
            raise ApplyError(
                f"the tables of {self.pipeline.name} changed their shape while this was built: apply again"
            )
        self.folds.leap(_log_epoch(self.lake, self.pipeline))
        self._fold.follower.follow()
        beside = self.lake.table(ledger_name(self.name))
        properties = {**head_of(beside).properties, TOKEN: str(lease.token)}
        marks = {GENERATION: str(self.run.generation), MEANING: encode_meaning(self.pipeline.meaning), FROM: self.name}
        return _switch(self.lake, lease, Contents.of(beside), properties, marks)


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


def _under_lease(lake: Lake, table: str, run: Run, work: Callable[[Lease], int]) -> tuple[int, float]:
    """Borrow the ledger's lease at an epoch boundary and call `work`; return its result and its duration in seconds."""

    def timed(lease: Lease) -> tuple[int, float]:
        since = time.perf_counter()
        return work(lease), time.perf_counter() - since

    return under_borrowed_lease(lake, table, run.run, timed)


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


def _log_epoch(lake: Lake, pipeline: Pipeline) -> int:
    """Return the last epoch that is in all logs and in the ledgers of all input definitions."""
    earlier = (lake.head(ledger_name(one.name)).number("epoch") for one in pipeline.before)
    return min([last_epoch(lake, pipeline.sources), *earlier])


def _rename(pipeline: Pipeline, name: str) -> Pipeline:
    """Copy a definition and give the copy a name that no regular definition can have."""
    copied = copy.copy(pipeline)
    object.__setattr__(copied, "name", name)
    return copied
