"""Take tables back to an epoch: every epoch is a consistent cut over all (asynchronous snapshots, sections 3 and 4).

An epoch is one commit of the log and one of each ledger that reads it, published in that order, so the snapshots that
were current at the end of one epoch belong together: they hold the state and all records on their way between two
stages. Each table goes back in one commit of metadata alone; its contents until then keep a tag. The next stream folds
the epochs after it again from the log, or reads them again from the source where the log goes back, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Commit, repeated, standing
from tailrace.lake.change.generations import FROM, GENERATION, Contents, go_over, settle
from tailrace.lake.commit.lease import HOLDING, TOKEN, Lease, borrowed
from tailrace.lake.commit.range_replacement import Replaced
from tailrace.lake.commit.readers import STAMP
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.lake_errors import LakeError, MovedError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name, rejected_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition

TAG = "restored_"
"""The prefix of the tags of the snapshots that tables went back from, and of the answers to go back to."""


class RestoreError(LakeError):
    """An epoch that cannot be gone back to; nothing was changed."""


@dataclass(frozen=True)
class Restored:
    """A table that went back from epoch `before` to `epoch`; `tag` names the snapshot that it went back from."""

    table: str
    before: int
    epoch: int
    tag: str


@dataclass(frozen=True)
class _Cut:
    """A table's commits up to the end of an epoch, the latest first, and the `undone` ones after it.

    `before` is the epoch that the table stands at now.
    """

    table: str
    before: int
    commits: Sequence[Commit]
    undone: Sequence[Commit]

    @property
    def properties(self) -> dict[str, str]:
        return {k: v for k, v in standing(self.commits).properties.items() if k not in HOLDING}

    @property
    def epoch(self) -> int:
        return int(self.properties["epoch"])


def restore(
    lake: Lake, definitions: Sequence[Definition], epoch: int, *, log: bool = False, reason: str | None = None
) -> list[Restored]:
    """Take definitions, with all their stages, back to the end of an epoch; the log and its source, too, if `log`.

    Streams of the definitions are fenced off: they drop the definitions, or stop where the log goes back. A table that
    has not come to the epoch yet is left alone. A restore that died on the way is completed by another call. Raises
    `RestoreError` where a table does not keep the epoch any more.
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
    done: list[Restored] = []
    with ExitStack() as leases:
        # The log goes back first: from then on no new epoch is published that a stage could fold.
        for table in logs:
            lease = Lease.take(lake, table)
            leases.callback(lease.close)
            done.append(_gone_back(lake, lease, _cut(lake, table, epoch), None))
        held = []
        for stage in stages:
            run = f"restore_{epoch}_{uuid.uuid4().hex[:8]}"
            held.append((stage, leases.enter_context(borrowed(lake, ledger_name(stage.name), run))))
        # The last stage goes back first, so that no stage is ever ahead of the one that it reads.
        for stage, lease in reversed(held):
            done.append(_stage_back(lake, stage, lease, epoch, reason))
    return [one for one in done if one.before > one.epoch]


def _stage_back(lake: Lake, stage: Definition, lease: Lease, epoch: int, reason: str | None) -> Restored:
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
    undone = {made.run for one in cut.undone if (made := Replaced.of(one)) is not None}
    for other in runs.all():
        if other.run in undone and other.status == "committed":
            runs.note(other, status="taken_back", reason=f"generation {run.generation} went {note}")
    runs.note(run, status="committed")
    return found


def _gone_back(lake: Lake, lease: Lease, cut: _Cut, run: Run | None) -> Restored:
    """Have a table hold its contents at the cut again, while its lease is ours; the snapshot it leaves gets a tag."""
    if cut.before <= cut.epoch:
        return Restored(cut.table, cut.before, cut.epoch, "")
    properties = repeated(cut.properties) | {TOKEN: str(lease.token)}
    table_properties: dict[str, str] = {}
    if run is not None:
        properties["generation"] = str(run.generation)
        table_properties = {GENERATION: str(run.generation), FROM: f"{TAG}{run.generation}"}
    while True:
        loaded = lake.table(cut.table)
        lease.check()
        tag = f"{TAG}{head_of(loaded).snapshot}"
        try:
            snapshot = cut.commits[0].snapshot
            go_over(loaded, Contents.of(loaded, snapshot), properties, table_properties, tag, parent=snapshot)
            return Restored(cut.table, cut.before, cut.epoch, tag)
        except MovedError:
            # A backfill of closed windows or maintenance committed in between: the next try undoes it, too.
            continue


def go_back(lake: Lake, lease: Lease, epoch: int) -> Restored:
    """Have the table of a lease hold its contents as of an epoch again. Raises `RestoreError` where they are gone."""
    found = _gone_back(lake, lease, _cut(lake, lease.table, epoch), None)
    lease.head = lease.branch.start(lease.check())
    return found


def _cut(lake: Lake, table: str, epoch: int) -> _Cut:
    """Find a table's commits up to the end of an epoch. Raises `RestoreError` where the table or they are gone."""
    if not lake.has(table):
        raise RestoreError(f"there is no table {lake.settings.namespace}.{table}: a stream of the definition makes it")
    commits = lake.commits(table)
    before = standing(commits).number("epoch")
    place = next(
        (n for n, one in enumerate(commits) if one.properties and int(one.properties.get("epoch", -1)) <= epoch), None
    )
    found = None if place is None else int(commits[place].properties.get("epoch", -1))
    rejected = table.endswith("__rejected")
    if place is None or found is None or (found < min(epoch, before) and not rejected):
        epochs = sorted({int(one.properties["epoch"]) for one in commits if "epoch" in one.properties})
        raise RestoreError(
            f"{table} cannot go back to epoch {epoch}: its snapshots of epochs {epochs[0]} to {epochs[-1]} are kept "
            "(TAILRACE_KEEP_SNAPSHOTS and TAILRACE_MOST_SNAPSHOTS say how many)"
        )
    return _Cut(table, before, commits[place:], commits[:place])


def _answers_until(lake: Lake, name: str, cut: _Cut) -> int:
    """Find the last snapshot of the answers that stands for a commit of the ledger in the cut."""
    known = {one.snapshot for one in cut.commits}
    for one in lake.commits(name):
        if STAMP not in one.properties or int(one.properties[STAMP]) in known:
            return one.snapshot
    raise RestoreError(
        f"table {name} has no snapshot left that is as old as epoch {cut.epoch}: drop it, and a stream makes it anew "
        "from the ledger"
    )
