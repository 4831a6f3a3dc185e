"""Repair tables that other programs have changed: rewrite answers from the ledger, or accept commits that a user names.

The answers can be computed from the ledger (law L2), so a table of answers that differs from the ledger is rewritten as
a whole, in one commit. A ledger or a log cannot be computed from another table, so `restore`, `rollback` or a backfill
has to bring lost rows back. A user can accept a commit of another program (a foreign commit) after checking it. The
table records the acceptance permanently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tailrace.engines.batch.run_engine import session_for
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import ACCEPTED_FOR, MAINTAINED, STAMP, FileChange, Head, repeated_properties
from tailrace.lake.commit.commit_history import commit_history
from tailrace.lake.commit.pins import pin_snapshots
from tailrace.lake.digests.commit_digest import ACCEPTED
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import PANE
from tailrace.lake.schema.filters import EVERYTHING, equal
from tailrace.lake.schema.lake_errors import LakeError, MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.upkeep.rewriting import files_of
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.results.answers import latest_answers
from tailrace.sql.terms import Query, Relation, bracketed, quoted

T = TypeVar("T")

TRIES = 10
"""The maximum number of attempts to commit, if other commits to the same table interfere."""


@dataclass(frozen=True)
class RepairResult:
    """The result of a repair: the numbers of answers, missing rows (`missing`) and surplus rows (`more`).

    `written` is True if the table was rewritten. `accepted` lists the commits of other programs that audits now ignore.
    """

    answers: int
    missing: int
    more: int
    written: bool
    accepted: tuple[int, ...]


def repair_answers(lake: Lake, pipeline: Pipeline) -> RepairResult:
    """Rewrite the table of answers if its rows differ from the answers that the ledger determines.

    The comparison also counts how often equal rows occur. A stream may run in the meantime. Raises `LakeError` if there
    is no table of answers, or if another commit changes the table of answers during every attempt.
    """
    check_definition(lake, pipeline)
    if not lake.has(pipeline.name):
        raise LakeError(
            f"{pipeline.name} has no table of answers to rewrite: it is read from its ledger, which "
            "`tailrace backfill` corrects"
        )
    # DuckDB runs in this process and writes new files; one commit then replaces the old files with the new files.
    here = Lake(lake.settings.model_copy(update={"engine": "duckdb"}), lake.tell)
    return _retry(lambda: _repair(here, pipeline), pipeline.name)


def _repair(lake: Lake, pipeline: Pipeline) -> RepairResult:
    ledger = ledger_name(pipeline.name)
    with session_for(lake, pipeline, "repair", [(ledger, EVERYTHING), (pipeline.name, EVERYTHING)]) as session:
        follower = session.follower(pipeline, "repair")
        try:
            stands = follower.follow()
        finally:
            follower.close()
        head = lake.head(pipeline.name)
        if head.properties.get(STAMP) != str(stands):
            raise MovedError(f"{pipeline.name} was changed while it was compared")
        with pin_snapshots(lake, {ledger: stands}):
            return _compare(session, pipeline, stands, head)


def _compare(session: Session, pipeline: Pipeline, stands: int, head: Head) -> RepairResult:
    lake, table = session.lake, session.lake.table(pipeline.name)
    panes = session.table(ledger_name(pipeline.name), equal("kind", PANE), stands)
    own = latest_answers(pipeline, Relation(f"(SELECT * FROM {panes} WHERE kind = '{PANE}')"))
    values = [quoted(name) for name in pipeline.answer_columns]
    columns = join_items(key_names(pipeline), list(SPAN), values, ["timing", *VERSION])
    right = session.materialized(Query(f"SELECT {columns} FROM ({own}) WHERE NOT retraction"))
    held = bracketed(Query(f"SELECT {columns} FROM {session.table(pipeline.name)}"))
    missing, more = (
        session.count(Relation(f"(SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other})"))
        for one, other in ((right, held), (held, right))
    )
    foreign = _foreign(lake, pipeline.name)
    marks = _marks(head, foreign, "the answers were made anew from the ledger")
    if missing or more:
        order = Query(f"SELECT * FROM {right} ORDER BY window_end, window_start")
        files = session.files(order, pipeline.name) or ()
        lake.change(pipeline.name, FileChange(tuple(files), tuple(files_of(table))), marks, head.snapshot)
    elif foreign:
        lake.mark(pipeline.name, marks, head.snapshot)
    return RepairResult(session.count(right), missing, more, bool(missing or more), foreign)


def accept(lake: Lake, tables: Collection[str], commits: Collection[int], reason: str) -> dict[int, str]:
    """Accept commits of other programs, so that later audits ignore these commits.

    Returns a dict that maps each commit to its table. Raises `LakeError`, and accepts no commit, if any of the commits
    is not a foreign commit of the tables.
    """
    foreign = {one: table for table in tables for one in _foreign(lake, table)}
    if unknown := sorted({*commits} - foreign.keys()):
        there = ", ".join(map(str, sorted(foreign))) or "none"
        raise LakeError(
            f"commit {unknown[0]} is no foreign commit of {', '.join(tables)}: those that an audit names are {there}"
        )
    for table in tables:
        own = sorted(one for one in commits if foreign[one] == table)
        if own:
            _retry(partial(_accept, lake, table, own, reason), table)
    return {one: foreign[one] for one in commits}


def _accept(lake: Lake, table: str, own: Sequence[int], reason: str) -> None:
    head = lake.head(table)
    lake.mark(table, _marks(head, own, reason), head.snapshot)


def _marks(head: Head, accepted: Sequence[int], reason: str) -> dict[str, str]:
    """Return the properties of a commit that accepts commits of other programs.

    The properties of the last epoch are repeated, so that they are also in the table's latest commit.
    """
    marks = {**repeated_properties(head.properties), MAINTAINED: "true", ACCEPTED_FOR: reason}
    return marks | ({ACCEPTED: " ".join(map(str, accepted))} if accepted else {})


def _retry(work: Callable[[], T], table: str) -> T:
    """Call `work`, and call it again whenever another commit has changed the table. Gives up after `TRIES` attempts."""
    for _ in range(TRIES):
        try:
            return work()
        except MovedError:
            continue
    raise MovedError(f"other commits have moved {table} in each of {TRIES} attempts: try again")


def _foreign(lake: Lake, table: str) -> tuple[int, ...]:
    return tuple(one.snapshot for one in commit_history(lake, table).foreign)
