"""Read a pipeline's current answers, either from its table of answers or from the last panes in its ledger.

The table and the ledger contain the same answers (law L2), so a comparison gets the same answers from either source.
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
    """Return a relation of a pipeline's current answers, with the columns of a table of answers.

    If the answers are read from the ledger, the ledger is read at `snapshot`. The filter `where` only skips files whose
    window bounds exclude a match: rows that do not match `where` may remain in the relation.
    """
    table, within = answers_source(session.lake, pipeline, where)
    if table == pipeline.name:
        return session.table(table, within)
    panes = Relation(f"(SELECT * FROM {session.table(table, within, snapshot)} WHERE kind = '{PANE}')")
    return session.view(Query(f"SELECT * FROM ({latest_answers(pipeline, panes)}) WHERE NOT retraction"))
