"""Tell apart, in SQL, the state that an epoch does nothing to: it stays as it is, and no Python worker sees it.

A key or a window rests where its key has no record in the bundle and nothing of its own is due (MillWheel, 4.1: a
computation runs for a key as a record or a timer comes).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.sql.terms import Condition, quoted

_BROUGHT, _TOUCHED = "_brought", "_touched"


def brought(records: DataFrame, key: Iterable[str]) -> DataFrame:
    """Return the distinct keys of an epoch's records, computed by the first job that reads them."""
    keys = records.selectExpr(*map(quoted, key), f"true AS {_BROUGHT}").distinct()
    # Checkpointed, as Spark would read a bundle that is joined with itself from the source again, cached or not.
    return keys.localCheckpoint(eager=False)


def split_state(
    state: DataFrame, keys: DataFrame, key: Iterable[str], clock: DataFrame, due: Condition
) -> tuple[DataFrame, DataFrame]:
    """Split a state into the rows that an epoch has something to do to, and those that rest.

    `keys` are the keys that have records (`brought`). `due` is the SQL condition that there is something to do
    without a record, on the columns of the state and of `clock`, which has one row.
    """
    own = [quoted(name) for name in state.columns]
    judged = state.crossJoin(clock).selectExpr(*own, f"COALESCE({due}, true) AS {_TOUCHED}")
    on = " AND ".join(f"s.{quoted(name)} <=> b.{quoted(name)}" for name in key) or "true"
    both = judged.alias("s").join(keys.alias("b"), F.expr(on), "left")
    marked = both.selectExpr(*(f"s.{name}" for name in own), f"b.{_BROUGHT} IS NOT NULL OR s.{_TOUCHED} AS {_TOUCHED}")
    return marked.where(_TOUCHED).drop(_TOUCHED), marked.where(f"NOT {_TOUCHED}").drop(_TOUCHED)


def with_resting(spark: SparkSession, stepped: DataFrame, resting: DataFrame, schema: StructType) -> DataFrame:
    """Append the state that rests to the rows that were stepped, with columns `state` and `ledger`."""
    state = F.struct(*map(quoted, schema["state"].dataType.fieldNames()))  # type: ignore[attr-defined]
    nothing = F.lit(None).cast(schema["ledger"].dataType)
    # Coalesced, as each epoch adds the partitions of stepped rows to those of resting rows.
    few = resting.coalesce(int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    return stepped.unionAll(few.select(state.alias("state"), nothing.alias("ledger")))
