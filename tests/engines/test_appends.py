"""Many rows of Spark's are appended as they come where they lie in few partitions, else sorted (X2)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.engines.spark.rows.branch_rows import append
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import PROPERTIES, Column, Contract
from tailrace.settings import Settings

TABLE = "visits"


def test_X2_rows_are_in_their_partitions_sorted_or_as_they_come(plain: SparkSession, settings: Settings) -> None:
    lake = Lake(settings)
    columns = {name: Column(type, "") for name, type in {"kind": "string", "who": "string", "at": "timestamp"}.items()}
    layout = ("kind", "bucket(2, who)", "day(at)")
    lake.ensure(Contract(TABLE, "visits", columns, layout, PROPERTIES, sort_by=("who",)), {})
    rows = plain.range(60).selectExpr(
        "'in' AS kind", "CAST(id % 7 AS string) AS who", "TIMESTAMP '1969-12-30' + MAKE_DT_INTERVAL(id % 5) AS at"
    )
    spread = []
    for at_once in (False, True):
        branch = Branch(lake, TABLE, f"stream_{at_once}".lower())
        branch.start()
        append(rows, branch, {"epoch": "1"}, at_once=at_once)
        assert sorted(plain.sql(f"SELECT * FROM {lake.spark_name(TABLE, branch.name)}").collect()) == sorted(
            rows.collect()
        )
        snapshot = lake.refs(TABLE)[branch.name]
        files = [task.file for task in lake.table(TABLE).scan(snapshot_id=snapshot).plan_files()]
        spread.append(sorted((str(file.partition), file.record_count) for file in files))
    assert spread[0] == spread[1]
