"""Compute the answers for input that has ended, for backfills and audits, in SQL or with the definition's Python code.

The answers are always returned as a query. If SQL can express the whole definition, the query is the whole computation.
Otherwise the query reads a relation that Python code computes from the records.
"""

from __future__ import annotations

from functools import partial

from tailrace.engines.python.assigned import BOUNDS, assigning_calls
from tailrace.engines.python.finished_windows import answer_calls, rejecting_calls, window_calls
from tailrace.engines.python.own_calls import judging_calls
from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.pipeline_tables import key_columns
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import SIGN
from tailrace.sql.epoch import map_rows
from tailrace.sql.epoch.partials import combine_partials
from tailrace.sql.records import assignment
from tailrace.sql.records.selections import FAILED, accepted_records, may_fail, rejected_records
from tailrace.sql.records.stage_records import records_of_batch
from tailrace.sql.records.ways import Way, combines_in_sql, way
from tailrace.sql.results import answers
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, all_of, bracketed, quoted

PLACED = {"_epoch": "bigint", "_source": "string", "_offset": "bigint"}
"""The columns that store a record's position in its source, and the types of these columns."""


class Answering:
    """Computes a definition's answers entirely in SQL."""

    def __init__(self, session: Session, pipeline: Pipeline) -> None:
        self.session, self.pipeline = session, pipeline
        self.earlier = None if pipeline.earlier is None else answering(session, pipeline.earlier.finished)

    @property
    def first(self) -> Answering:
        """The object that computes the answers of the pipeline's first stage."""
        return self if self.earlier is None else self.earlier.first

    def assigned(self, log: Relation) -> Query:
        """Return the query for the stage's records with their windows (`assignment.window_rows`).

        `log` is a relation of the source's log. If the stage has earlier stages, the earlier stages compute the stage's
        records from the log.
        """
        return self.onward(self.first.placed(log))

    def onward(self, rows: Query) -> Query:
        """Return the query for this stage's records with their windows.

        `rows` is the query that returns the first stage's records with their windows.
        """
        if self.earlier is None:
            return rows
        return self.placed(self.changed(self.earlier.batch(self.earlier.onward(rows))))

    def changed(self, answers: Query) -> Relation:
        """Return the parenthesized query of the records that this stage reads.

        `answers` is the query of the previous stage's answers, from which the records are computed.
        """
        assert self.earlier is not None, f"{self.pipeline.name} is the first stage"
        return bracketed(records_of_batch(self.earlier.pipeline, answers))

    def placed(self, source: Relation) -> Query:
        """Return the query that assigns windows to the records of a relation."""
        return assignment.window_rows(self.pipeline, self._prepared(source))

    def left_out(self, source: Relation) -> Query:
        """Return the query for the records that pass through the definition's steps but do not meet its `keep`
        condition.
        """
        return Query(f"SELECT * FROM {self._prepared(source)} WHERE NOT {assignment.keep_condition(self.pipeline)}")

    @property
    def _types(self) -> dict[str, str]:
        """The types of the columns that the stage's records have after its steps.

        If records can be retracted, there is one more column, the sign: it tells added records from retracted records.
        """
        return {**self.pipeline.columns, **({SIGN: "int"} if self.pipeline.log.takes_back else {})}

    def _prepared(self, source: Relation) -> Relation:
        """Return a relation of the stage's records after its steps, with the columns needed to assign windows."""
        return self._stepped(source)

    def _stepped(self, source: Relation) -> Relation:
        if not self.pipeline.each:
            return source
        prepared = self.session.prepared(source, self.pipeline)
        return accepted_records(prepared) if may_fail(self.pipeline) else prepared

    def failed(self, source: Relation) -> Query:
        """Return the query for the rejected records: each record's position, and the reason for the rejection."""
        items = ", ".join([*PLACED, FAILED])
        texts = []
        if may_fail(self.pipeline):
            texts.append(
                f"SELECT {items} FROM {bracketed(rejected_records(self.session.prepared(source, self.pipeline)))}"
            )
        if way(self.pipeline) is not Way.SQL:
            good = Query(f"SELECT * FROM {self._stepped(source)}{assignment.keep_clause(self.pipeline)}")
            refused = self.session.mapped(good, partial(rejecting_calls, self.pipeline), {**PLACED, FAILED: "string"})
            texts.append(f"SELECT {items} FROM {refused}")
        return Query(" UNION ALL ".join(texts))

    def batch(self, rows: Query, within: Condition = ALWAYS) -> Query:
        """Return the query that computes the answers from records that have been assigned to windows.

        `within` is a condition on the windows: only the answers of windows that meet this condition are computed
        (`answers.batch_answers`).
        """
        return answers.batch_answers(self.pipeline, rows, within)

    def brought(self, source: Relation, within: Condition = ALWAYS) -> Query:
        """Return the query that computes the answers from a relation's records.

        The query computes each answer from one accumulator (the aggregated records of the answer's window), and does
        not count the records of a window. If all accumulators fit into this process's memory, this process fetches the
        accumulators.
        """
        pipeline = self.pipeline
        types = _windows(pipeline) | {name: part.type for name, part in pipeline.parts.items()}
        # If windows merge, check `within` last, for whole sessions only: an accumulator that was computed from only
        # some of the records may cover only a part of a session.
        at_once, at_last = (ALWAYS, within) if pipeline.where.merges else (within, ALWAYS)
        accumulators = answers.accumulators(pipeline, self._prepared(source), at_once)
        taken = self.session.brought(accumulators, types, partial(combine_partials, pipeline))
        return answers.results_of(pipeline, taken, at_last)


class AssignedAnswering(Answering):
    """Computes the answers in SQL, after user-defined code has assigned windows to the records."""

    def _prepared(self, source: Relation) -> Relation:
        pipeline, types = self.pipeline, self._types | PLACED
        within = f"FROM {super()._prepared(source)}{assignment.keep_clause(pipeline)}"
        text = Query(f"SELECT {', '.join(map(quoted, types))} {within}")
        columns = {**types, assignment.WINDOWS: BOUNDS, FAILED: "string"}
        return accepted_records(self.session.mapped(text, partial(assigning_calls, pipeline), columns))


class CombinedAnswering(Answering):
    """Computes the answers in SQL that calls the custom combiners, without the records that they reject."""

    def _prepared(self, source: Relation) -> Relation:
        pipeline, types = self.pipeline, self._types | PLACED
        within = f"FROM {super()._prepared(source)}{assignment.keep_clause(pipeline)}"
        if not any(one.fails for one in pipeline.own_combiners):
            return bracketed(Query(f"SELECT * {within}"))
        text = Query(f"SELECT {', '.join(map(quoted, types))} {within}")
        columns = {**types, FAILED: "string"}
        return accepted_records(self.session.mapped(text, partial(judging_calls, pipeline), columns))


class PythonAnswering(Answering):
    """Computes a definition's answers with the model's Python code and the definition's own code."""

    def placed(self, source: Relation) -> Query:
        record = ",".join(f"{name}:{type}" for name, type in self._types.items())
        columns = {**_windows(self.pipeline), "record": f"struct<{record}>", **PLACED}
        text = Query(f"SELECT * FROM {self._prepared(source)}{assignment.keep_clause(self.pipeline)}")
        return all_of(self.session.mapped(text, partial(window_calls, self.pipeline), columns))

    def batch(self, rows: Query, within: Condition = ALWAYS) -> Query:
        pipeline = self.pipeline
        parts = {name: part.type for name, part in pipeline.parts.items()}
        columns = {**_windows(pipeline), **pipeline.answer_columns, **parts}
        columns["_arrived"] = "bigint"
        made = self.session.by_key(rows, pipeline.key, partial(answer_calls, pipeline), columns)
        return Query(f"SELECT * FROM {made} WHERE {within}")

    def brought(self, source: Relation, within: Condition = ALWAYS) -> Query:
        return self.batch(self.placed(source), within)


def _windows(pipeline: Pipeline) -> dict[str, str]:
    """Return the types of the columns that identify a window, by column name.

    The columns are the key's columns and the window's bounds in microseconds.
    """
    return key_columns(pipeline) | dict.fromkeys(SPAN, "bigint")


def answering(session: Session, pipeline: Pipeline) -> Answering:
    """Return the object that computes a definition's answers on the session's engine.

    A caller that needs only the answers passes `pipeline.finished`. This variant of the pipeline assumes that the input
    has ended and that no record is retracted any more, so SQL may be able to compute it even if SQL cannot compute
    `pipeline` itself.
    """
    if combines_in_sql(pipeline) and session.calls_combiners(pipeline):
        return CombinedAnswering(session, pipeline)
    return _ANSWERING[way(pipeline)](session, pipeline)


_ANSWERING: dict[Way, type[Answering]] = {
    Way.SQL: Answering,
    Way.ASSIGNED: AssignedAnswering,
    Way.PYTHON: PythonAnswering,
}


def split_records(session: Session, definition: Map, records: Relation) -> tuple[Relation, Relation | None]:
    """Return two relations of a map's records after its steps: the accepted records, and the rejected records.

    The relation of the rejected records is None if no step can reject records.
    """
    prepared = session.prepared(records, definition)
    if not may_fail(definition):
        return prepared, None
    return accepted_records(prepared), session.view(rejected_records(prepared))


def map_output(session: Session, definition: Map, records: Relation) -> Query:
    """Return the query that computes a map's output rows from the records of the map's log.

    Rejected records are excluded.
    """
    return map_rows.output(definition, split_records(session, definition, records)[0])
