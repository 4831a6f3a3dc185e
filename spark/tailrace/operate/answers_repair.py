"""Repair foreign changes: rewrite answers from the ledger, or accept foreign commits by name.

The answers follow from the ledger (law L2), so a table of answers that differs is rewritten as a whole, in one commit.
A ledger or a log follows from no other table: `restore`, `rollback` or a backfill brings lost rows back. A foreign
commit that somebody has checked and wants to keep is accepted, which the table records permanently.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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
from tailrace.sql.records.assignment import listed, names
from tailrace.sql.results.answers import latest
from tailrace.sql.terms import Query, Relation, bracketed, quoted

TRIES = 10
"""The maximum attempts of a commit that other commits interrupt."""


@dataclass(frozen=True)
class Repaired:
    """The result of a repair: the number of answers, and the numbers of `missing` and surplus rows (`more`).

    `written` says whether the table was rewritten; `accepted` names the foreign commits that no longer matter.
    """

    answers: int
    missing: int
    more: int
    written: bool
    accepted: tuple[int, ...]


def repair_answers(lake: Lake, pipeline: Pipeline) -> Repaired:
    """Rewrite the answers from the ledger if they differ (as multisets of rows); else leave them alone.

    A stream may run meanwhile. Raises `LakeError` if there is no table of answers, or if a stream moves it at each
    attempt.
    """
    check_definition(lake, pipeline)
    if not lake.has(pipeline.name):
        raise LakeError(
            f"{pipeline.name} has no table of answers that could be made anew: it is read from its ledger, which "
            "`tailrace backfill` puts right"
        )
    # DuckDB runs in this process, which writes files that one commit exchanges for the old ones.
    here = Lake(lake.settings.model_copy(update={"engine": "duckdb"}), lake.tell)
    for _ in range(TRIES):
        try:
            return _repaired(here, pipeline)
        except MovedError:
            continue
    raise MovedError(f"{pipeline.name} is committed to so often that it could not be written anew: try again")


def _repaired(lake: Lake, pipeline: Pipeline) -> Repaired:
    ledger = ledger_name(pipeline.name)
    with session_for(lake, pipeline, "repair", [(ledger, EVERYTHING), (pipeline.name, EVERYTHING)]) as session:
        follower = session.follower(pipeline, "repair")
        try:
            stands = follower.follow()
        finally:
            follower.close()
        head = lake.head(pipeline.name)
        if head.properties.get(STAMP) != str(stands):
            raise MovedError(f"{pipeline.name} was moved while it was looked at")
        with pin_snapshots(lake, {ledger: stands}):
            return _compared(session, pipeline, stands, head)


def _compared(session: Session, pipeline: Pipeline, stands: int, head: Head) -> Repaired:
    lake, table = session.lake, session.lake.table(pipeline.name)
    panes = session.table(ledger_name(pipeline.name), equal("kind", PANE), stands)
    own = latest(pipeline, Relation(f"(SELECT * FROM {panes} WHERE kind = '{PANE}')"))
    values = [quoted(name) for name in pipeline.answer_columns]
    columns = listed(names(pipeline), list(SPAN), values, ["timing", *VERSION])
    right = session.materialized(Query(f"SELECT {columns} FROM ({own}) WHERE NOT retraction"))
    held = bracketed(Query(f"SELECT {columns} FROM {session.table(pipeline.name)}"))
    missing, more = (
        session.count(Relation(f"(SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other})"))
        for one, other in ((right, held), (held, right))
    )
    foreign = _foreign(lake, pipeline.name)
    said = {
        **repeated_properties(head.properties),
        MAINTAINED: "true",
        ACCEPTED_FOR: "the answers were made anew from the ledger",
    }
    said |= {ACCEPTED: " ".join(map(str, foreign))} if foreign else {}
    if missing or more:
        order = Query(f"SELECT * FROM {right} ORDER BY window_end, window_start")
        files = session.files(order, pipeline.name) or ()
        lake.change(pipeline.name, FileChange(tuple(files), tuple(files_of(table))), said, head.snapshot)
    elif foreign:
        lake.mark(pipeline.name, said, head.snapshot)
    return Repaired(session.count(right), missing, more, bool(missing or more), foreign)


def accept(lake: Lake, tables: Collection[str], commits: Collection[int], reason: str) -> dict[int, str]:
    """Accept foreign commits, so that later audits ignore them; return the table of each commit.

    Raises `LakeError`, and accepts none, if one of them is not a foreign commit of the tables.
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
            _accepted(lake, table, own, reason)
    return {one: foreign[one] for one in commits}


def _accepted(lake: Lake, table: str, own: list[int], reason: str) -> None:
    for _ in range(TRIES):
        head = lake.head(table)
        said = {
            **repeated_properties(head.properties),
            MAINTAINED: "true",
            ACCEPTED: " ".join(map(str, own)),
            ACCEPTED_FOR: reason,
        }
        try:
            lake.mark(table, said, head.snapshot)
            return
        except MovedError:
            continue
    raise MovedError(f"{table} is committed to so often that nothing could be accepted: try again")


def _foreign(lake: Lake, table: str) -> tuple[int, ...]:
    return tuple(one.snapshot for one in commit_history(lake, table).foreign)
