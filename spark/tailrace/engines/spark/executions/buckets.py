"""Process an epoch's state and records with Python workers on the executors, one bucket of keys at a time.

The state and the records are grouped by a hash of the key. Python is called once per bucket rather than once per key or
record. A call gets two Arrow tables: the bucket's state and the bucket's records. A key's state rests in an epoch if
the key has no record, no due timer and no due window. Python workers do not read resting states (compare MillWheel,
4.1: a computation runs for a key when a record or a timer arrives).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tailrace.engines.spark.workers.python_tasks import over_group
from tailrace.sql.terms import Condition, quoted

BUCKETS = 16
"""The number of buckets of keys, which is also the number of Python calls per epoch.

During a Python call, the state of one whole bucket is in memory.
"""

BUCKET = "_bucket"

_BROUGHT, _TOUCHED = "_brought", "_touched"

BucketCall: TypeAlias = Callable[[pa.Table, pa.Table], tuple[pa.Table, pa.Table]]
"""A function from a bucket's state and records to the bucket's state and ledger rows after the epoch."""


def bucket_term(key: Sequence[str]) -> str:
    """Return the SQL expression for a row's bucket, computed from the key's columns."""
    return f"PMOD(HASH({', '.join(map(quoted, key))}), {BUCKETS})" if key else "0"


def keys_of(records: DataFrame, key: Iterable[str]) -> DataFrame:
    """Return the distinct keys of an epoch's records. The keys are computed by the first Spark job that reads them."""
    keys = records.selectExpr(*map(quoted, key), f"true AS {_BROUGHT}").distinct()
    # The keys are checkpointed, because Spark would otherwise read the bundle's source twice when the bundle is joined
    # with its own keys, even if the bundle is cached.
    return keys.localCheckpoint(eager=False)


def split_state(
    state: DataFrame, keys: DataFrame, key: Iterable[str], clock: DataFrame, due: Condition
) -> tuple[DataFrame, DataFrame]:
    """Split the rows of a state into the rows that an epoch may change and the rows that rest (stay as they are).

    `keys` are the keys of the epoch's records (`keys_of`). `due` is the SQL condition under which an epoch may change a
    row whose key has no record. The condition refers to the columns of the state and of `clock`, which has one row.
    """
    own = [quoted(name) for name in state.columns]
    judged = state.crossJoin(clock).selectExpr(*own, f"COALESCE({due}, true) AS {_TOUCHED}")
    on = " AND ".join(f"s.{quoted(name)} <=> b.{quoted(name)}" for name in key) or "true"
    both = judged.alias("s").join(keys.alias("b"), F.expr(on), "left")
    marked = both.selectExpr(*(f"s.{name}" for name in own), f"b.{_BROUGHT} IS NOT NULL OR s.{_TOUCHED} AS {_TOUCHED}")
    return marked.where(_TOUCHED).drop(_TOUCHED), marked.where(f"NOT {_TOUCHED}").drop(_TOUCHED)


class BucketStep:
    """Builds the data frame of a step that runs in Python.

    Each row of the frame has two struct columns, `state` and `ledger`, of which exactly one is null.
    """

    def __init__(self, spark: SparkSession, state: StructType, ledger: StructType) -> None:
        self._spark, self._state, self._ledger = spark, state, ledger
        self._schema = StructType([StructField("state", state), StructField("ledger", ledger)])
        self.schemas: tuple[pa.Schema, pa.Schema] = (to_arrow_schema(state), to_arrow_schema(ledger))

    def frame(
        self, state: DataFrame, records: DataFrame, call: BucketCall, resting: DataFrame | None = None
    ) -> DataFrame:
        """Call a function on each bucket's state and records, and return the results as one data frame.

        If `resting` is given, its rows are appended to the frame unchanged. These rows are the part of the state that
        the epoch does not touch.
        """
        schema = to_arrow_schema(self._schema)

        def called(left: pa.Table, right: pa.Table) -> pa.Table:
            return _as_pairs(schema, *call(left, right))

        both = state.groupBy(BUCKET).cogroup(records.groupBy(BUCKET))
        made = both.applyInArrow(lambda left, right: over_group(called, left, right), self._schema)
        if resting is None:
            return made
        rests, nothing = F.struct(*map(quoted, self._state.fieldNames())), F.lit(None).cast(self._ledger)
        # Merge the partitions of the resting rows, which the epoch does not touch. Otherwise, the number of partitions
        # would grow with each epoch.
        few = resting.coalesce(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1))
        return made.unionAll(few.select(rests.alias("state"), nothing.alias("ledger")))

    @staticmethod
    def parts(made: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Split a frame of this step into the ledger rows and the state, and return the two frames."""
        ledger, state = (made.where(f"{part} IS NOT NULL").select(f"{part}.*") for part in ("ledger", "state"))
        return ledger, state


def _as_pairs(schema: pa.Schema, state: pa.Table, ledger: pa.Table) -> pa.Table:
    """Combine rows of the state and of the ledger into one table with two struct columns.

    In each row, one of the two columns is null.
    """
    parts = []
    for name, part in (("state", state), ("ledger", ledger)):
        rows = part.to_struct_array()
        nothing = {one.name: pa.nulls(len(rows), one.type) for one in schema}
        parts.append(pa.table([*(nothing | {name: rows}).values()], schema=schema))
    return pa.concat_tables(parts)
