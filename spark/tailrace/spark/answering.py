"""The answers of finished input, in the definition's own execution: what backfills and audits read.

Either way they come as SQL: natively as the whole computation, in the `python` execution as a view of what the
executors' Python makes of the records.
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.engines.python.answers import answerer, assigner
from tailrace.model.log import SIGN
from tailrace.model.pipeline import Pipeline
from tailrace.spark.execution import schema_of
from tailrace.spark.per_key import BUCKET, bucketed
from tailrace.spark.preparing import prepare
from tailrace.sql import answers, windows
from tailrace.sql.algebra import quoted
from tailrace.sql.changes import answered
from tailrace.sql.reasons import reasons
from tailrace.sql.steps import FAILED, may_fail


class Answering:
    """How a definition's answers are computed, natively."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark, self.pipeline = spark, pipeline
        self.earlier = None if pipeline.earlier is None else answering(spark, pipeline.earlier.finished)

    @property
    def first(self) -> Answering:
        """That of the first stage."""
        return self if self.earlier is None else self.earlier.first

    def assigned(self, log: str) -> str:
        """The stage's records, each with its windows (`windows.assigned`).

        `log` is a view, or a query in brackets, of the source's log; a later stage's records are what the one before
        makes of it.
        """
        return self.onward(self.first.placed(log))

    def onward(self, rows: str) -> str:
        """The same of the first stage's assigned records."""
        if self.earlier is None:
            return rows
        return self.after(self.earlier.batch(self.earlier.onward(rows)))

    def after(self, answers: str) -> str:
        """The same of the answers of the stage before, a query."""
        assert self.earlier is not None, f"{self.pipeline.name} is the first stage"
        return self.placed(f"({answered(self.earlier.pipeline, answers)})")

    def placed(self, source: str) -> str:
        """The records of a view, or a query in brackets, each with its windows."""
        return windows.assigned(self.pipeline, self._prepared(source))

    def _prepared(self, source: str) -> str:
        if not self.pipeline.each:
            return source
        prepared = prepare(self.spark.sql(f"SELECT * FROM {source}"), self.pipeline)
        if not may_fail(self.pipeline):
            return f"({self._view(prepared)})"
        return f"({self._view(prepared.where(f'{FAILED} IS NULL').drop(FAILED))})"

    def failed(self, source: str) -> str:
        """The records of a view that one of the stage's steps rejects, with where each came from."""
        prepared = prepare(self.spark.sql(f"SELECT * FROM {source}"), self.pipeline)
        return self._view(prepared.where(f"{FAILED} IS NOT NULL"))

    def _view(self, frame: DataFrame) -> str:
        name = f"tailrace_{self.pipeline.name}_{uuid.uuid4().hex[:8]}"
        frame.createOrReplaceTempView(name)
        return f"SELECT * FROM {name}"

    def batch(self, rows: str, within: str = "true") -> str:
        """The answers of assigned records, of the windows that meet a condition (`answers.batch`)."""
        return answers.batch(self.pipeline, rows, within)


class PythonAnswering(Answering):
    """The same in the executors' Python."""

    def placed(self, source: str) -> str:
        types = {**self.pipeline.columns, SIGN: "int"} if self.earlier else self.pipeline.columns
        record = ", ".join(f"{quoted(name)}: {type}" for name, type in types.items())
        columns = {name: self.pipeline.columns[name] for name in self.pipeline.key}
        columns |= {"window_start": "bigint", "window_end": "bigint", "record": f"struct<{record}>"}
        schema = schema_of(columns | {"_epoch": "bigint", "_source": "string", "_offset": "bigint"})
        one = assigner(self.pipeline, to_arrow_schema(schema))
        kept = f"SELECT * FROM {self._prepared(source)}{windows.kept(self.pipeline)}"
        return self._view(self.spark.sql(kept).mapInArrow(one, schema))

    def batch(self, rows: str, within: str = "true") -> str:
        pipeline = self.pipeline
        keys = {name: pipeline.columns[name] for name in pipeline.key}
        parts = {name: part.type for name, part in pipeline.parts.items()}
        columns = {**keys, "window_start": "bigint", "window_end": "bigint", **pipeline.results, **parts}
        columns["_arrived"] = "bigint"
        schema = schema_of(columns)
        grouped = self.spark.sql(f"SELECT *, {bucketed(pipeline)} AS {BUCKET} FROM ({rows})").groupBy(BUCKET)
        one = answerer(pipeline, to_arrow_schema(schema))
        return f"SELECT * FROM ({self._view(grouped.applyInArrow(one, schema))}) WHERE {within}"


def answering(spark: SparkSession, pipeline: Pipeline) -> Answering:
    """How the answers of a definition are computed, in the execution that it takes.

    Of finished input nothing is taken back. Who wants nothing but the answers passes `pipeline.finished`, which runs
    natively also where that would not.
    """
    return (PythonAnswering if reasons(pipeline) else Answering)(spark, pipeline)
