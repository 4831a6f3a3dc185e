"""Check the tables of a definition of any kind: their commits, their files, and their agreement with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake, head_of, lineage
from tailrace.lake.catalog.table_protocol import STAMP
from tailrace.lake.commit.archive import archive_name, commits
from tailrace.lake.commit.commit_history import commit_history
from tailrace.lake.commit.range_replacement import replacing_runs
from tailrace.lake.commit.runs_table import runs_named
from tailrace.lake.digests.commit_digest import CommitDigest, digest_of, manifest_files
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name, rejected_name, runs_name
from tailrace.model.definition.definition import Definition
from tailrace.verify.tampering.audit_result import SHOWN, Check
from tailrace.verify.tampering.file_checks import files_are_whole


def files_check(lake: Lake, definition: Definition, *, deep: bool) -> Check:
    """Check that the files of a definition's tables are intact; if `deep` is True, read the bytes of every file."""
    tables = recorded_tables(lake, definition) + answers_of(lake, definition)
    # The archives are checked first, because they also contain recorded checksums of the tables' files.
    files = files_are_whole(lake, _archives(lake, tables), deep=deep)
    return files_are_whole(lake, tables, deep=deep) if files.ok else files


def table_checks(lake: Lake, definition: Definition) -> list[Check]:
    """Check that Tailrace made all commits of a definition's tables, and that the tables agree with each other."""
    tables = recorded_tables(lake, definition) + answers_of(lake, definition)
    return [commits_are_ours(lake, [*tables, *_archives(lake, tables)]), tables_agree(lake, definition)]


def answers_of(lake: Lake, definition: Definition) -> list[str]:
    """Return a list with the name of the definition's table of answers, or an empty list if there is no such table."""
    answers = tables_of(definition).answers
    return [answers.table] if answers is not None and lake.has(answers.table) else []


def _archives(lake: Lake, tables: Iterable[str]) -> list[str]:
    return [one for table in tables if (one := archive_name(lake, table)) is not None]


def recorded_tables(lake: Lake, definition: Definition) -> list[str]:
    """Return the existing tables that cannot be rebuilt from other tables: logs, rejected records, ledger, and runs."""
    logs = [log.name for log in definition.sources]
    named = [*logs, *map(rejected_name, logs), ledger_name(definition.name), runs_name(definition.name)]
    return [table for table in named if lake.has(table)]


def tables_agree(lake: Lake, definition: Definition) -> Check:
    """Check that no table is older than a table derived from it.

    A table that is older has been set back to a former state.
    """
    faults = list(_disagreements(lake, definition))
    return Check("the tables are of one time", not faults, "; ".join(faults) or "none is behind what another has of it")


def _disagreements(lake: Lake, definition: Definition) -> Iterator[str]:
    # The log is published before the ledger, and the ledger before the answers. The tables are read in the opposite
    # order, so that commits during the check do not make a table seem older than it is.
    stamped = next((lake.head(table).properties.get(STAMP) for table in answers_of(lake, definition)), None)
    ledger = ledger_name(definition.name)
    epoch = lake.head(ledger).number("epoch")
    history = commits(lake, ledger)
    if stamped is not None and history.whole and int(stamped) not in {one.snapshot for one in history.all}:
        yield f"{definition.name} stands for commit {stamped} of {ledger}, which is not there"
    for log in definition.sources:
        if (last := lake.head(log.name).number("epoch")) < epoch:
            yield f"{log.name} ends with epoch {last}, and {ledger} has folded up to epoch {epoch}"
    yield from _runs(lake, definition)


def _runs(lake: Lake, definition: Definition) -> Iterator[str]:
    """Yield a message for each backfill that has a commit in the ledger but no row in the table of runs."""
    ledger, runs = ledger_name(definition.name), runs_name(definition.name)
    if lake.has(runs):
        made = replacing_runs(commits(lake, ledger).all)
        for run in sorted(made - {run.run for run in runs_named(lake, definition.name)}):
            yield f"{ledger} has a commit of run {run}, which {runs} lacks"


def commits_are_ours(lake: Lake, tables: Iterable[str]) -> Check:
    """Check that only this lake's own processes made commits to the tables, and that the files match the commits."""
    faults, count, notes = list[str](), 0, list[str]()
    for table in tables:
        loaded = lake.table(table)
        history = commit_history(lake, table)
        count += history.count
        faults += (f"{table}: {fault}" for fault in (*history.foreign, *_taken_back(loaded), *_files(loaded)))
        notes += [f"{history.compactions:,} compactions of {table} by Spark or another"] if history.compactions else []
        notes += [f"{len(history.accepted):,} foreign commits of {table} were accepted"] if history.accepted else []
    found = "; ".join(faults[:SHOWN]) + (f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else "")
    detail = "; ".join([f"{count:,} commits", *notes])
    return Check("every commit is this lake's own", not faults, found or detail)


def _taken_back(table: Table) -> Iterator[str]:
    """Yield a message for each commit that was undone because `main` was moved back to an earlier commit."""
    entries = [entry.snapshot_id for entry in table.metadata.snapshot_log]
    for before, now in pairwise(entries):
        if before != now and any(one.snapshot_id == now for one in lineage(table, before)):
            yield f"commit {before} was taken back: main was moved to {now} by another hand"


def _files(table: Table) -> Iterator[str]:
    """Compare a table's files with the digest in its last commit; yield a message if files and digest differ.

    If the commit has no digest, nothing is yielded.
    """
    snapshot = table.metadata.snapshot_by_id(head_of(table).snapshot or -1)
    digest = CommitDigest.of(snapshot)
    if snapshot is None or digest is None:
        return
    if digest_of(manifest_files(snapshot.manifests(table.io), table.io)) != digest.files:
        yield f"the files that commit {snapshot.snapshot_id} lists are not those that it was made with"
