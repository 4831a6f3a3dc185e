"""What a data file stores as differences is read back the same by each reader of the lake (X6)."""

from __future__ import annotations

import random
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.scans import scan_table
from tailrace.lake.catalog.column_encodings import FEW
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.schema.contracts import DIFFERENCES, PAGES, PROPERTIES, Column, Contract
from tailrace.settings import Settings

ROWS = 3 * FEW
TYPES = {
    "n": "bigint",
    "big": "bigint",
    "small": "int",
    "at": "timestamp",
    "day": "date",
    "same": "bigint",
    "text": "string",
}
COLUMNS = {name: Column(type, "a column") for name, type in TYPES.items()}
NUMBERS = Contract("numbers", "numbers", COLUMNS, properties=PROPERTIES | {PAGES: DIFFERENCES}, key=("n",))
PLAIN = Contract("plain", "numbers", COLUMNS, key=("n",))


def numbers() -> pa.Table:
    """Numbers that repeat and that do not, in and out of order, the largest ones and nulls among them."""
    some = random.Random(7)
    big = [some.choice((-(2**63), 2**63 - 1, *(some.getrandbits(63) - 2**62 for _ in range(4)))) for _ in range(ROWS)]
    small = [
        None if some.random() < 0.1 else some.choice((-(2**31), 2**31 - 1, *(some.getrandbits(30) for _ in range(6))))
        for _ in range(ROWS)
    ]
    at = pa.array(
        [1_700_000_000_000_000 + 720 * n - some.getrandbits(20) for n in range(ROWS)], pa.timestamp("us", "UTC")
    )
    day = pa.array([n - ROWS // 2 for n in range(ROWS)], pa.int32()).cast(pa.date32())
    texts = pa.array([f"t{n % 5}" for n in range(ROWS)])
    columns = [
        pa.array(range(ROWS)),
        pa.array(big),
        pa.array(small, pa.int32()),
        at,
        day,
        pa.array([n % 3 for n in range(ROWS)]),
        texts,
    ]
    return pa.table(columns, names=list(TYPES))


def test_only_a_table_whose_pages_have_version_2_stores_differences(settings: Settings) -> None:
    lake = Lake(settings)
    lake.ensure(PLAIN)
    [file] = lake.write_files("plain", numbers())
    stored = pq.ParquetFile(file.file_path.removeprefix("file://")).metadata.row_group(0)
    assert not any("DELTA_BINARY_PACKED" in stored.column(n).encodings for n in range(stored.num_columns))


def test_X6_numbers_stored_as_differences_are_the_same_to_pyiceberg_duckdb_and_spark(
    spark: SparkSession, settings: Settings
) -> None:
    lake, rows = Lake(settings), numbers()
    lake.ensure(NUMBERS)
    [file] = lake.write_files("numbers", rows)
    lake.change("numbers", FileChange((file,)), {}, lake.head("numbers").snapshot)
    stored = pq.ParquetFile(file.file_path.removeprefix("file://")).metadata.row_group(0)
    coded = {stored.column(n).path_in_schema: stored.column(n).encodings for n in range(stored.num_columns)}
    assert [name for name, used in coded.items() if "DELTA_BINARY_PACKED" in used] == ["n", "big", "small", "at", "day"]
    expected = rows.to_pylist()
    assert lake.table("numbers").scan().to_arrow().sort_by("n").to_pylist() == expected
    with closing(connect(settings)) as connection, scan_table(connection, lake, "numbers") as found:
        assert connection.execute(f"SELECT * FROM {found} ORDER BY n").to_arrow_table().to_pylist() == expected
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.iceberg.vectorization.enabled", vectorized)
        frame = spark.table(lake.identifier("numbers")).orderBy("n")
        assert frame.toArrow().to_pylist() == expected
        path = file.file_path
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        assert (
            spark.read.parquet(path).orderBy("n").toArrow().select(["n", "big", "small"]).to_pylist()
            == rows.select(["n", "big", "small"]).to_pylist()
        )
