"""The answers of finished input, in the definition's own execution: what backfills and audits read.

Either way they come as SQL: natively as the whole computation, else as a relation of what the model's own Python makes
of the records.
"""

from __future__ import annotations

from functools import partial

from tailrace.engines.python.assigned import BOUNDS, placer
from tailrace.engines.python.finished_windows import answerer, assigner
from tailrace.engines.session_protocol import Session
from tailrace.model.definition.log import SIGN
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records import assignment
from tailrace.sql.records.selections import FAILED, may_fail
from tailrace.sql.records.stage_records import answered
from tailrace.sql.records.ways import Way, way
from tailrace.sql.results import answers, map_rows
from tailrace.sql.terms import quoted

PLACED = {"_epoch": "bigint", "_source": "string", "_offset": "bigint"}
"""The columns of where a record came from, and their types."""


class Answering:
    """How a definition's answers are computed, natively."""

    def __init__(self, session: Session, pipeline: Pipeline) -> None:
        self.session, self.pipeline = session, pipeline
        self.earlier = None if pipeline.earlier is None else answering(session, pipeline.earlier.finished)

    @property
    def first(self) -> Answering:
        """That of the first stage."""
        return self if self.earlier is None else self.earlier.first

    def assigned(self, log: str) -> str:
        """The stage's records, each with its windows (`assignment.assigned`).

        `log` is a relation, or a query in brackets, of the source's log; a later stage's records are what the one
        before makes of it.
        """
        return self.onward(self.first.placed(log))

    def onward(self, rows: str) -> str:
        """The stage's records of the first stage's assigned ones."""
        if self.earlier is None:
            return rows
        return self.placed(self.changed(self.earlier.batch(self.earlier.onward(rows))))

    def changed(self, answers: str) -> str:
        """Turn the answers of the stage before, a query, into the records that this stage reads, in brackets."""
        assert self.earlier is not None, f"{self.pipeline.name} is the first stage"
        return f"({answered(self.earlier.pipeline, answers)})"

    def placed(self, source: str) -> str:
        """The records of a relation, or a query in brackets, each with its windows."""
        return assignment.assigned(self.pipeline, self._prepared(source))

    @property
    def _types(self) -> dict[str, str]:
        """The columns of the stage's records after its steps, and the sign of those that another stage gives."""
        return {**self.pipeline.columns, **({SIGN: "int"} if self.earlier else {})}

    def _prepared(self, source: str) -> str:
        if not self.pipeline.each:
            return source
        prepared = self.session.prepared(source, self.pipeline)
        if not may_fail(self.pipeline):
            return prepared
        return f"(SELECT * EXCEPT ({FAILED}) FROM {prepared} WHERE {FAILED} IS NULL)"

    def failed(self, source: str) -> str:
        """The records of a relation that one of the stage's steps rejects, with where each came from."""
        return f"SELECT * FROM {self.session.prepared(source, self.pipeline)} WHERE {FAILED} IS NOT NULL"

    def batch(self, rows: str, within: str = "true") -> str:
        """The answers of assigned records, of the windows that meet a condition (`answers.batch`)."""
        return answers.batch(self.pipeline, rows, within)

    def computed(self, source: str, within: str = "true") -> str:
        """The answers of the records of a relation, or a query in brackets: `batch` of them as `placed`."""
        return answers.computed(self.pipeline, self._prepared(source), within)


class AssignedAnswering(Answering):
    """How a definition's answers are computed of records whose windows code of one's own has assigned: by SQL."""

    def _prepared(self, source: str) -> str:
        pipeline, types = self.pipeline, self._types | PLACED
        kept = f"SELECT {', '.join(map(quoted, types))} FROM {super()._prepared(source)}{assignment.kept(pipeline)}"
        return self.session.mapped(kept, partial(placer, pipeline), {**types, assignment.WINDOWS: BOUNDS})


class PythonAnswering(Answering):
    """How a definition's answers are computed by the model's own Python."""

    def placed(self, source: str) -> str:
        record = ",".join(f"{name}:{type}" for name, type in self._types.items())
        columns = {name: self.pipeline.columns[name] for name in self.pipeline.key}
        columns |= {"window_start": "bigint", "window_end": "bigint", "record": f"struct<{record}>"}
        columns |= PLACED
        kept = f"SELECT * FROM {self._prepared(source)}{assignment.kept(self.pipeline)}"
        return f"SELECT * FROM {self.session.mapped(kept, partial(assigner, self.pipeline), columns)}"

    def batch(self, rows: str, within: str = "true") -> str:
        pipeline = self.pipeline
        keys = {name: pipeline.columns[name] for name in pipeline.key}
        parts = {name: part.type for name, part in pipeline.parts.items()}
        columns = {**keys, "window_start": "bigint", "window_end": "bigint", **pipeline.results, **parts}
        columns["_arrived"] = "bigint"
        made = self.session.by_key(rows, pipeline.key, partial(answerer, pipeline), columns)
        return f"SELECT * FROM {made} WHERE {within}"

    def computed(self, source: str, within: str = "true") -> str:
        return self.batch(self.placed(source), within)


def answering(session: Session, pipeline: Pipeline) -> Answering:
    """How the answers of a definition are computed, on the session's engine.

    Of finished input nothing is taken back. Who wants nothing but the answers passes `pipeline.finished`, which runs
    natively also where that would not.
    """
    return _ANSWERING[way(pipeline)](session, pipeline)


_ANSWERING: dict[Way, type[Answering]] = {
    Way.SQL: Answering,
    Way.ASSIGNED: AssignedAnswering,
    Way.PYTHON: PythonAnswering,
}


def taken(session: Session, definition: Map, records: str) -> tuple[str, str | None]:
    """A relation of a map's records after the steps, and one of those that a step rejects; None where none may."""
    prepared = session.prepared(records, definition)
    if not may_fail(definition):
        return prepared, None
    good = f"(SELECT * EXCEPT ({FAILED}) FROM {prepared} WHERE {FAILED} IS NULL)"
    return good, session.view(f"SELECT * FROM {prepared} WHERE {FAILED} IS NOT NULL")


def mapped(session: Session, definition: Map, records: str) -> str:
    """Write the query of what a map gives of its log's records, less those that a step rejects."""
    return map_rows.given(definition, taken(session, definition, records)[0])
