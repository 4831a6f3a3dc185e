"""The checks of the tables of a definition of any kind: their commits, their files, and how they agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import Commit
from tailrace.lake.commit.archive import archive_name, commits
from tailrace.lake.commit.range_replacement import Replaced
from tailrace.lake.commit.readers import STAMP
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.table_names import ledger_name, rejected_name, runs_name
from tailrace.model.definition.chain import Definition, Ranged
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.pipeline import Pipeline
from tailrace.verify.tampering.audit_result import Audit, Check
from tailrace.verify.tampering.commit_checks import commits_are_ours
from tailrace.verify.tampering.file_checks import files_are_whole


def with_tables(lake: Lake, definition: Definition, rows: Callable[[], Audit], *, deep: bool = False) -> Audit:
    """Check the tables of a definition, and after that its `rows`; `deep` reads the bytes of every file.

    Where a file is gone or damaged, the rows are left out, as they could not be read.
    """
    answers = [definition.name] if isinstance(definition, Pipeline) and lake.has(definition.name) else []
    tables = [*recorded_tables(lake, definition), *answers]
    archives = [one for table in tables if (one := archive_name(lake, table)) is not None]
    # What is known of the files' bytes is in the archives, too.
    files = files_are_whole(lake, archives, deep=deep)
    files = files_are_whole(lake, tables, deep=deep) if files.ok else files
    if not files.ok:
        left_out = Check("the rows add up", False, "left out: not all files can be read")
        return Audit({}, (files, left_out), EngineChoice(Engine.DUCKDB, "nothing was read"))
    audited = rows()
    commits_ = commits_are_ours(lake, [*tables, *archives])
    return replace(audited, checks=(*audited.checks, commits_, tables_agree(lake, definition), files))


def recorded_tables(lake: Lake, definition: Definition) -> list[str]:
    """Name the tables that nothing else in the lake could be made anew from: logs, rejected records, ledger, runs."""
    logs = [log.name for log in definition.sources]
    named = [*logs, *map(rejected_name, logs), ledger_name(definition.name), runs_name(definition.name)]
    return [table for table in named if lake.has(table)]


def tables_agree(lake: Lake, definition: Definition) -> Check:
    """Check that no table stands before what another has of it, as one does that was set back by another hand."""
    faults = list(_disagreements(lake, definition))
    return Check("the tables are of one time", not faults, "; ".join(faults) or "none is behind what another has of it")


def _disagreements(lake: Lake, definition: Definition) -> Iterator[str]:
    # Read in this order, so that what is published meanwhile is behind nothing: the log is published first.
    stamped = lake.head(definition.name).properties.get(STAMP) if _answered(lake, definition) else None
    ledger = ledger_name(definition.name)
    epoch = lake.head(ledger).number("epoch")
    history = commits(lake, ledger)
    if stamped is not None and history.whole and int(stamped) not in {one.snapshot for one in history.all}:
        yield f"{definition.name} stands for commit {stamped} of {ledger}, which is not there"
    for log in definition.sources:
        if (last := lake.head(log.name).number("epoch")) < epoch:
            yield f"{log.name} ends with epoch {last}, and {ledger} has folded up to epoch {epoch}"
    if not isinstance(definition, Computation):
        yield from _runs(lake, definition)


def _answered(lake: Lake, definition: Definition) -> bool:
    return isinstance(definition, Pipeline) and lake.has(definition.name)


def _runs(lake: Lake, definition: Ranged) -> Iterator[str]:
    """Say which backfills the ledger and the table of runs do not agree about."""
    if not lake.has(runs_name(definition.name)):
        return
    history = commits(lake, ledger_name(definition.name))
    made = {one.run for each in history.all if (one := Replaced.of(Commit(each.snapshot, each.properties)))}
    known = {run.run: run for run in Runs(lake, definition).all()}
    for run in sorted(made - known.keys()):
        yield f"{ledger_name(definition.name)} has a commit of run {run}, which {runs_name(definition.name)} lacks"
