"""Measure what grows with the age of tables: a commit by their snapshots, and maintenance by their files."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.planning.readings import jvm_of, kept, spent
from benchmarks.planning.shapes import Shape
from tailrace.engines.spark.rows.branch_rows import append
from tailrace.engines.spark.session import open_session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.operate.maintenance import maintain
from tailrace.settings import Settings

AGES = (10, 110, 210)
"""Snapshots at which commits are measured; a stream trims a table of 500 (`TAILRACE_MOST_SNAPSHOTS`) to 100."""

EACH = 12
"""Commits of Spark's at each age."""


def grown(settings: Settings, spark: SparkSession) -> list[dict[str, Any]]:
    """CPU seconds of a commit, a branch that is written and published, at each age, and what the metadata has then."""
    lake = Lake(settings.model_copy(update={"namespace": "aged"}))
    log = Log(name="aged", columns={"at": "timestamp", "n": "bigint"}, event_time="at", disorder=timedelta(days=1))
    properties = {"epoch": "0", "batch": "0", "progress": "x" * 300}
    lake.ensure(log_contract(log), properties)
    rows = spark.sql("SELECT current_timestamp() AS at, 1L AS n").selectExpr("at", "n", *_placed(lake, log.name))
    pid = jvm_of(spark)
    branch = Branch(lake, log.name, "stream_aged")
    branch.start()
    for _ in range(EACH):
        _committed(branch, rows, properties)
    found = []
    for age in AGES:
        while len(lake.table(log.name).metadata.snapshots) < age:
            lake.mark(log.name, properties, lake.head(log.name).snapshot)
        branch.start()
        took = [spent(pid)]
        for _ in range(EACH):
            _committed(branch, rows, properties)
            took.append(spent(pid))
        each = sorted(after.jvm - after.compiler + after.python - before.jvm + before.compiler - before.python
                      for before, after in pairwise(took))  # fmt: skip
        there = kept(lake.table(log.name))
        found.append({
            "snapshots": there.snapshots, "cpu": sum(each[: EACH // 2]) / (EACH // 2),
            "metadata_bytes": there.metadata_bytes, "commits": 2,
        })  # fmt: skip
    return found


def maintained(settings: Settings, pipeline: Pipeline, shape: Shape) -> dict[str, Any]:
    """CPU seconds of maintaining the tables of a stream, and the data files that there were before and after."""
    spark, lake = open_session(settings), Lake(settings)
    pid = jvm_of(spark)
    tables = (pipeline.log.name, f"{pipeline.name}__ledger", pipeline.name)

    def there() -> tuple[int, int]:
        found = [lake.table(table).inspect.files() for table in tables]
        return sum(len(one) for one in found), sum(sum(one["file_size_in_bytes"].to_pylist()) for one in found)

    files, size = there()
    before = spent(pid)
    maintain(spark, lake, pipeline)
    took = spent(pid) - before
    return {
        "shape": shape.name, "records": shape.landed, "files": files, "bytes": size, "left": there()[0],
        "cpu": took.jvm - took.compiler + took.python,
    }  # fmt: skip


def _committed(branch: Branch, rows: Any, properties: dict[str, str]) -> None:
    append(rows, branch, properties)
    branch.publish()


def _placed(lake: Lake, table: str) -> list[str]:
    """The log's other columns, as nulls of their types or as something."""
    filled = {"string": "'x'", "long": "0L", "int": "0", "timestamptz": "current_timestamp()"}
    own = {"at", "n"}
    fields = [field for field in lake.table(table).schema().fields if field.name not in own]
    return [f"{filled[re.sub(r'[^a-z].*', '', str(field.field_type))]} AS {field.name}" for field in fields]
