"""Read the answers that a pipeline holds: from its table of answers, or from the last panes of its ledger.

Both give the same answers (law L2), so a comparison need not know which table was read.
"""

from __future__ import annotations

from tailrace.engines.session_protocol import Session
from tailrace.lake.read.current_answers import answers_source
from tailrace.lake.schema.contracts import PANE
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.results.answers import latest_answers
from tailrace.sql.terms import Query, Relation


def held_answers(
    session: Session, pipeline: Pipeline, where: Filter = EVERYTHING, snapshot: int | None = None
) -> Relation:
    """Name a relation of the answers, with the columns of a table of answers.

    Where the ledger is read, it is read as of `snapshot`. `where` skips files by the bounds of windows.
    """
    table, within = answers_source(session.lake, pipeline, where)
    if table == pipeline.name:
        return session.table(table, within)
    panes = Relation(f"(SELECT * FROM {session.table(table, within, snapshot)} WHERE kind = '{PANE}')")
    return session.view(Query(f"SELECT * FROM ({latest_answers(pipeline, panes)}) WHERE NOT retraction"))
