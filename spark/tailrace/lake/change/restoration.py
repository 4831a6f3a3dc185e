"""Restore tables to an epoch, which is a consistent cut over all tables (asynchronous snapshots, sections 3 and 4).

An epoch consists of one commit to the log and one commit to each ledger that is computed from the log, in this order.
So the snapshots that were current at the end of one epoch belong together. These snapshots contain the state of all
stages, and all records that are in transit from one stage to the next. Each table is restored by one commit that
changes only metadata; a tag keeps the table's former contents. The next stream folds the later epochs again from the
log. If the log is also restored, the stream reads these epochs again from the source.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import STAMP, Commit, head_of_commits, repeated_properties
from tailrace.lake.change.generations import FROM, GENERATION, Contents, go_over, settle
from tailrace.lake.change.refusal_texts import refusal_text
from tailrace.lake.commit.lease import HOLDING, TOKEN, Lease, borrow_lease
from tailrace.lake.commit.range_replacement import replacing_runs
from tailrace.lake.commit.runs_table import Runs, committed_backfills
from tailrace.lake.schema.lake_errors import LakeError, MovedError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name, rejected_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition

TAG = "restored_"
"""The prefix of the tags that a restore sets.

One kind of tag marks a table's snapshot from before a restore. The other kind marks the snapshot of the answers table
that a restore makes current again.
"""


class RestoreError(LakeError):
    """The error that is raised, before any change, if a table cannot be restored to the requested epoch."""


@dataclass(frozen=True)
class Restoration:
    """A table that was restored from epoch `before` to epoch `epoch`.

    `tag` marks the table's snapshot from before the restore.
    """

    table: str
    before: int
    epoch: int
    tag: str


@dataclass(frozen=True)
class UndoneBackfill:
    """A committed backfill of a stage, whose corrections a restore undoes."""

    stage: str
    run: Run


@dataclass(frozen=True)
class _Cut:
    """A table's commits up to the end of an epoch, and the later commits (`undone`), which the restore undoes.

    In both lists, the latest commit is first. `before` is the table's present epoch.
    """

    table: str
    before: int
    commits: Sequence[Commit]
    undone: Sequence[Commit]

    @property
    def properties(self) -> dict[str, str]:
        return {k: v for k, v in head_of_commits(self.commits).properties.items() if k not in HOLDING}

    @property
    def epoch(self) -> int:
        return int(self.properties["epoch"])


def restore(
    lake: Lake,
    definitions: Sequence[Definition],
    epoch: int,
    *,
    log: bool = False,
    reason: str | None = None,
    foretell: Callable[[Sequence[UndoneBackfill]], None] = lambda undone: None,
) -> list[Restoration]:
    """Restore definitions with all their stages to the end of an epoch; if `log` is set, also restore the log.

    If the log is restored, the next stream reads the log's source again from the end of this epoch. The streams that
    fold these definitions are fenced off: such a stream drops the definitions or, if the log is restored, stops. A
    table that has not yet reached the epoch is not changed. `foretell` is called before anything is changed, with the
    backfills whose corrections will be undone. If a restore is interrupted, another call completes it.
    Raises `RestoreError` if a table no longer has the epoch's snapshot.
    """
    stages = list({stage.name: stage for one in definitions for stage in chain(one)}.values())
    for stage in stages:
        check_definition(lake, stage)
        if tables_of(stage).answers is not None:
            settle(lake, stage.name)
    sources = dict.fromkeys(source.name for one in definitions for source in one.sources) if log else {}
    logs = [table for source in sources for table in (source, rejected_name(source))]
    for table in (*logs, *(ledger_name(stage.name) for stage in stages)):
        _cut(lake, table, epoch)
    foretell(_undone(lake, stages, epoch))
    done: list[Restoration] = []
    with ExitStack() as leases:
        # The log is restored first. Otherwise, a stream could publish a new epoch of the log while stages are restored,
        # and a stage could fold this epoch.
        for table in logs:
            lease = Lease.take(lake, table)
            leases.callback(lease.close)
            done.append(_gone_back(lake, lease, _cut(lake, table, epoch), None))
        held = []
        for stage in stages:
            run = f"restore_{epoch}_{uuid.uuid4().hex[:8]}"
            held.append((stage, leases.enter_context(borrow_lease(lake, ledger_name(stage.name), run))))
        # The last stage is restored first, so that no stage is ever at a later epoch than its input.
        for stage, lease in reversed(held):
            done.append(_stage_back(lake, stage, lease, epoch, reason))
    return [one for one in done if one.before > one.epoch]


def _undone(lake: Lake, stages: Sequence[Definition], epoch: int) -> list[UndoneBackfill]:
    """List the committed backfills of some stages that a restore to an epoch undoes."""
    found = list[UndoneBackfill]()
    for stage in stages:
        if tables_of(stage).runs is None:
            continue
        cut = _cut(lake, ledger_name(stage.name), epoch)
        if cut.before > epoch:
            runs, undone = committed_backfills(lake, stage.name), replacing_runs(cut.undone)
            found += [UndoneBackfill(stage.name, run) for run in runs if run.run in undone]
    return found


def _stage_back(lake: Lake, stage: Definition, lease: Lease, epoch: int, reason: str | None) -> Restoration:
    cut, own = _cut(lake, lease.table, epoch), tables_of(stage)
    if own.runs is None:
        return _gone_back(lake, lease, cut, None)
    runs, note = Runs(lake, stage), f"back to epoch {epoch}" + (f": {reason}" if reason else "")
    run = runs.start("restore", BEGINNING, END_OF_TIME, log_epoch=cut.epoch, reason=note)
    answered = own.answers is not None and lake.has(stage.name)
    if cut.before > epoch and answered:
        lake.name(stage.name, f"{TAG}{run.generation}", _answers_until(lake, stage.name, cut))
    found = _gone_back(lake, lease, cut, run)
    if answered:
        settle(lake, stage.name)
    undone = replacing_runs(cut.undone)
    for other in runs.all():
        if other.run in undone and other.status == "committed":
            runs.note(other, status="taken_back", reason=f"generation {run.generation} went {note}")
    runs.note(run, status="committed")
    return found


def _gone_back(lake: Lake, lease: Lease, cut: _Cut, run: Run | None) -> Restoration:
    """Restore a table to the last commit in `cut`, under the table's lease, and tag the table's present snapshot."""
    if cut.before <= cut.epoch:
        return Restoration(cut.table, cut.before, cut.epoch, "")
    properties = repeated_properties(cut.properties) | {TOKEN: str(lease.token)}
    table_properties: dict[str, str] = {}
    if run is not None:
        properties["generation"] = str(run.generation)
        table_properties = {GENERATION: str(run.generation), FROM: f"{TAG}{run.generation}"}
    while True:
        loaded = lake.table(cut.table)
        lease.check()
        tag = f"{TAG}{head_of(loaded).snapshot}"
        snapshot = cut.commits[0].snapshot
        held = Contents.of(loaded, snapshot)
        # Maintenance, or a backfill of closed windows, may commit meanwhile. The restore then tries again, and also
        # undoes that commit.
        with suppress(MovedError):
            go_over(loaded, held, properties, table_properties, tag, parent=snapshot)
            return Restoration(cut.table, cut.before, cut.epoch, tag)


def go_back(lake: Lake, lease: Lease, epoch: int) -> Restoration:
    """Restore the contents that the lease's table had at the end of an epoch.

    Raises `RestoreError` if these contents no longer exist.
    """
    found = _gone_back(lake, lease, _cut(lake, lease.table, epoch), None)
    lease.head = lease.branch.start(lease.check())
    return found


def _cut(lake: Lake, table: str, epoch: int) -> _Cut:
    """Divide a table's commits into the commits up to the end of an epoch and the later commits.

    Raises `RestoreError` if the table or the commits are missing.
    """
    if not lake.has(table):
        raise RestoreError(refusal_text("no-table", table=f"{lake.settings.namespace}.{table}"))
    commits = lake.commits(table)
    before = head_of_commits(commits).number("epoch")
    place = next(
        (n for n, one in enumerate(commits) if one.properties and int(one.properties.get("epoch", -1)) <= epoch), None
    )
    found = None if place is None else int(commits[place].properties.get("epoch", -1))
    rejected = table.endswith("__rejected")
    if place is None or found is None or (found < min(epoch, before) and not rejected):
        epochs = sorted({int(one.properties["epoch"]) for one in commits if "epoch" in one.properties})
        kept = {"first": epochs[0], "last": epochs[-1]}
        raise RestoreError(refusal_text("expired-epoch", table=table, epoch=epoch, **kept))
    return _Cut(table, before, commits[place:], commits[:place])


def _answers_until(lake: Lake, name: str, cut: _Cut) -> int:
    """Return the latest snapshot of the answers whose panes all come from the ledger commits in `cut`."""
    known = {one.snapshot for one in cut.commits}
    for one in lake.commits(name):
        if STAMP not in one.properties or int(one.properties[STAMP]) in known:
            return one.snapshot
    raise RestoreError(refusal_text("late-answers", table=name, epoch=cut.epoch))
