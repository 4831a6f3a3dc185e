"""A changed definition made so: its generation is built beside the old one from the log, and takes its place at once.

Beside, everything that the log holds is folded in a few large steps, while a stream of the old definition goes on. Then
the ledger's lease is borrowed, the last epochs are folded, and ledger and table `p` go over, each in one commit that
moves no data (`lake.change.generations`): the lease is lent for those two seconds or so, and landing never waits. The
stream of the old definition drops that fold. `rollback` makes what a generation left current again in the same way.

Of two that apply at once the later one goes on: it removes what the earlier one had beside, and that one gives way.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tailrace.engines.choose import Choice
from tailrace.engines.spark.session import open_session
from tailrace.fold.fold_group import FoldGroup
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.change.generations import (
    FROM,
    GENERATION,
    MEANING,
    Held,
    beside,
    generation_of,
    go_over,
    left,
    name_beside,
    refused,
    scratch,
    settle,
    sweep,
    tag_of,
)
from tailrace.lake.commit.epoch_properties import ONWARD
from tailrace.lake.commit.lease import HOLDING, TOKEN, Lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import answer_contract, ledger_contract
from tailrace.lake.schema.lake_errors import FencedError, MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.fingerprint import kept
from tailrace.model.definition.pipeline import Pipeline

NEAR = 2
"""So many epochs behind the log is near enough to borrow the lease for the rest."""

ROUNDS = 8
"""How often what is built beside follows the log before that, at most: a log may grow as fast as it is folded."""

TRIES = 3
"""How often the lease is borrowed where a stream takes it in between."""

Doing = Callable[[str], None]


class ApplyError(TailraceError, RuntimeError):
    """A definition that cannot be applied, or a generation that cannot be gone back to; nothing was changed."""


@dataclass(frozen=True)
class Applied:
    """What a run did: the generation that it put in place, up to which epoch, and how long the lease was borrowed.

    `run` is None where there was nothing to do. `left` is the generation that it took the place of. `engine` is what
    folded the log, None where nothing was folded. Seconds.
    """

    run: Run | None
    left: int
    epoch: int
    seconds: float = 0.0
    lent: float = 0.0
    gave_way: Run | None = None
    engine: Choice | None = None


class _GaveWayError(Exception):
    """A run of a higher generation is there, or under way."""

    def __init__(self, above: Run) -> None:
        self.above = above


def apply(
    lake: Lake,
    pipeline: Pipeline,
    *,
    reason: str | None = None,
    doing: Doing = lambda text: None,
) -> Applied:
    """Build the generation of a changed definition beside the old one, and put it in place.

    The log is folded in the process while that has room for it (`Sides`), and Spark is started where it has not. Where
    the definition is what the lake holds there is nothing to do, but to end what an earlier run may have left. Raises
    `ApplyError` where it cannot be.
    """
    if (why := refused(lake, pipeline)) is not None:
        raise ApplyError(why)
    table = ledger_contract(pipeline).table
    runs = Runs(lake, pipeline)
    # Another run may have ended between its two commits.
    settle(lake, pipeline.name)
    head = lake.head(table)
    if head.properties.get("fingerprint") == pipeline.fingerprint:
        _swept(lake, pipeline.name)
        _ended(runs, generation := generation_of(lake.table(table)))
        return Applied(None, generation, head.number("epoch"))
    started = time.perf_counter()
    run = runs.start("apply", BEGINNING, END_OF_TIME, log_epoch=_log_epoch(lake, pipeline), reason=reason)
    try:
        for other in runs.all():
            if other.kind == "apply" and other.status == "started" and other.generation < run.generation:
                runs.note(other, status="gave_way", reason=f"generation {run.generation} (run {run.run}) began")
        _swept(lake, pipeline.name)
        one = _Generation(lake, pipeline, run)
        doing(f"building generation {run.generation} of {pipeline.name} beside")
        one.build(doing)
        run = runs.note(run, log_epoch=one.epoch)
        doing(f"generation {run.generation} takes over")
        before, lent = one.take_over(runs)
        _swept(lake, pipeline.name)
        run = runs.note(run, status="committed", log_epoch=one.epoch, engine=str(one.engine))
        return Applied(run, before, one.epoch, time.perf_counter() - started, lent, engine=one.engine)
    except Exception as error:
        above = error.above if isinstance(error, _GaveWayError) else _later(runs, run)
        if above is not None:
            run = runs.note(run, status="gave_way", reason=f"generation {above.generation} (run {above.run}) began")
            return Applied(run, 0, run.log_epoch or -1, time.perf_counter() - started, gave_way=above)
        runs.failed(run, error)
        raise


def rollback(lake: Lake, pipeline: Pipeline, to: int | None = None, *, reason: str | None = None) -> Applied:
    """Go back to a generation that was left, the last one unless another is named; nothing is computed.

    A stream of its definition then folds the epochs since from the log. The state goes on in a generation of its own,
    above all that there were (rule V2). `pipeline` gives the name alone. Raises `ApplyError` where it cannot be.
    """
    name, table = pipeline.name, ledger_name(pipeline.name)
    if not lake.has(table):
        raise ApplyError(f"there is no table {table}, so nothing to go back to")
    settle(lake, name)
    if ONWARD in lake.head(table).properties:
        raise ApplyError(f"a later stage reads the panes of {name}, and would have two generations of them mixed")
    there = left(lake.table(table))
    to = max(there, default=None) if to is None else to
    if to is None or to not in there:
        found = f"those that it left are {', '.join(map(str, there))}" if there else "it has left none"
        raise ApplyError(f"{name} has no generation {'' if to is None else f'{to} '}to go back to: {found}")
    started, runs = time.perf_counter(), Runs(lake, pipeline)
    properties = head_of(lake.table(table), tag_of(to)).properties
    note = f"back to generation {to}" + (f": {reason}" if reason else "")
    run = runs.start("rollback", BEGINNING, END_OF_TIME, log_epoch=int(properties["epoch"]), reason=note)
    run = runs.note(run, fingerprint=properties["fingerprint"])
    try:
        before, lent = _borrowed(lake, table, run, lambda lease: _gone_back(lake, name, lease, run, to))
        settle(lake, name)
        _swept(lake, name)
        for other in runs.all():
            # What was computed in the generation that was left is in no table any more.
            if other.kind == "backfill" and other.status == "committed" and other.generation > before:
                runs.note(other, status="taken_back", reason=f"generation {run.generation} went {note}")
        run = runs.note(run, status="committed")
        return Applied(run, before, int(properties["epoch"]), time.perf_counter() - started, lent)
    except Exception as error:
        runs.failed(run, error)
        raise


class _Generation:
    """A generation that is built beside."""

    def __init__(self, lake: Lake, pipeline: Pipeline, run: Run) -> None:
        self.lake, self.pipeline, self.run = lake, pipeline, run
        self.table = ledger_contract(pipeline).table
        self.name = name_beside(pipeline.name, run.generation)
        first = {"epoch": "-1", "generation": str(run.generation), "fingerprint": pipeline.fingerprint}
        self.shapes = self._shapes()
        beside(lake, ledger_contract(pipeline), ledger_name(self.name), first)
        beside(lake, answer_contract(pipeline), self.name, {})
        starting = partial(open_session, lake.settings, app=f"tailrace apply {pipeline.name}")
        self.folds = FoldGroup(starting, lake, [_named(pipeline, self.name)], follow_every=1)

    @property
    def epoch(self) -> int:
        return self._fold.epoch

    @property
    def engine(self) -> Choice:
        """What has folded the log, in the end."""
        return self._fold.side.choice

    @property
    def _fold(self) -> PipelineFold:
        fold = self.folds[0]
        assert isinstance(fold, PipelineFold)
        return fold

    def build(self, doing: Doing) -> None:
        """Fold the log up to where it is by then, or nearly."""
        for _ in range(ROUNDS):
            last = _log_epoch(self.lake, self.pipeline)
            if last - self.epoch <= (NEAR if self.epoch >= 0 else 0):
                break
            doing(f"folding epochs {self.epoch + 1} to {last} of log {self.pipeline.source.name}")
            self.folds.leap(last)
            self._fold.follower.follow()

    def take_over(self, runs: Runs) -> tuple[int, float]:
        """Put it in place; gives the generation that it takes the place of, and how long the lease was borrowed."""
        before, lent = _borrowed(self.lake, self.table, self.run, lambda lease: self._taken_over(lease, runs))
        self.folds.close()
        settle(self.lake, self.pipeline.name)
        return before, lent

    def _shapes(self) -> list[tuple[int, int, int, int | None]]:
        """By which columns and layout the tables are that it is to take the place of."""
        found = [self.lake.table(name).metadata for name in (self.table, self.pipeline.name)]
        return [(m.current_schema_id, m.last_column_id, m.default_spec_id, m.default_sort_order_id) for m in found]

    def _taken_over(self, lease: Lease, runs: Runs) -> int:
        above = runs.above(self.run) or _later(runs, self.run)
        if above is not None:
            raise _GaveWayError(above)
        if self._shapes() != self.shapes:
            # What is beside has the numbers of columns of then, and one may be another column's by now.
            raise ApplyError(
                f"the tables of {self.pipeline.name} changed their shape while this was built: apply again"
            )
        self.folds.leap(_log_epoch(self.lake, self.pipeline))
        self._fold.follower.follow()
        beside = self.lake.table(ledger_name(self.name))
        properties = {**head_of(beside).properties, TOKEN: str(lease.token)}
        told = {GENERATION: str(self.run.generation), MEANING: kept(self.pipeline), FROM: self.name}
        return _gone_over(self.lake, lease, Held.of(beside), properties, told)


def _gone_back(lake: Lake, name: str, lease: Lease, run: Run, to: int) -> int:
    ledger, tag = lake.table(ledger_name(name)), tag_of(to)
    there = head_of(ledger, tag)
    properties = {one: value for one, value in there.properties.items() if one not in HOLDING}
    properties |= {TOKEN: str(lease.token), "generation": str(run.generation)}
    told = {GENERATION: str(run.generation), FROM: tag}
    told[MEANING] = ledger.properties.get(f"{MEANING}.{tag}", "")
    return _gone_over(lake, lease, Held.of(ledger, there.snapshot), properties, told)


def _gone_over(lake: Lake, lease: Lease, held: Held, properties: dict[str, str], told: dict[str, str]) -> int:
    """Have the ledger go over while its lease is ours; gives the generation that it left.

    A backfill of closed windows may commit in between, with no lease: it is part of what is left.
    """
    while True:
        ledger = lake.table(lease.table)
        lease.check()
        before = generation_of(ledger)
        meant = {f"{MEANING}.{tag_of(before)}": ledger.properties[MEANING]} if MEANING in ledger.properties else {}
        try:
            go_over(ledger, held, properties, told | meant, before)
            return before
        except MovedError:
            continue


def _borrowed(lake: Lake, table: str, run: Run, work: Callable[[Lease], int]) -> tuple[int, float]:
    """Do something at an epoch boundary, on the ledger's borrowed lease; gives its seconds, too."""
    for tries in reversed(range(TRIES)):
        lease, since = Lease.borrow(lake, table, run.run), time.perf_counter()
        try:
            return work(lease), time.perf_counter() - since
        except FencedError:
            # A stream started meanwhile, or did not wait any longer.
            if not tries:
                raise
        finally:
            lease.hand_back()
            lease.give_back()
    raise AssertionError("the last try returns or raises")


def _swept(lake: Lake, name: str) -> None:
    """Remove what is left beside, if anything is, while nobody can be about to take it over."""
    if not scratch(lake, name):
        return
    lease = Lease.borrow(lake, ledger_name(name), "sweep")
    try:
        settle(lake, name)
        sweep(lake, name)
    finally:
        lease.hand_back()
        lease.give_back()


def _ended(runs: Runs, generation: int) -> None:
    """Note that a run is committed which died after its generation was in place."""
    for other in runs.all():
        if other.generation == generation and other.kind in ("apply", "rollback") and other.status == "started":
            runs.note(other, status="committed")


def _later(runs: Runs, run: Run) -> Run | None:
    """A run that applies a definition in a higher generation, and has not failed."""
    for other in runs.all():
        if other.kind == "apply" and other.generation > run.generation and other.status in ("started", "committed"):
            return other
    return None


def _log_epoch(lake: Lake, pipeline: Pipeline) -> int:
    return lake.head(pipeline.source.name).number("epoch")


def _named(pipeline: Pipeline, name: str) -> Pipeline:
    """Rename a definition, to what no definition can be called."""
    one = copy.copy(pipeline)
    object.__setattr__(one, "name", name)
    return one
