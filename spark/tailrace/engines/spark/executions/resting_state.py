"""State that an epoch does nothing to: told apart in SQL, it goes on as it is, and no Python worker sees it.

A key or a window rests where its key has no record in the bundle and nothing of its own is due (MillWheel, 4.1: a
computation runs for a key as a record or a timer comes).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.sql.terms import quoted

_BROUGHT, _TOUCHED = "_brought", "_touched"


def brought(records: DataFrame, key: Iterable[str]) -> DataFrame:
    """The keys of an epoch's records, each once; they are computed with what is told apart by them."""
    keys = records.selectExpr(*map(quoted, key), f"true AS {_BROUGHT}").distinct()
    # Checkpointed, for Spark would read a bundle that meets itself from the source again, cached or not.
    return keys.localCheckpoint(eager=False)


def told_apart(
    state: DataFrame, keys: DataFrame, key: Iterable[str], clock: DataFrame, stirs: str
) -> tuple[DataFrame, DataFrame]:
    """The rows of a state that an epoch has something to do to, and those that rest.

    `keys` are those that are `brought` a record. `stirs` says whether there is something to do without one, of the
    columns of the state and of `clock`, a row.
    """
    own = [quoted(name) for name in state.columns]
    due = state.crossJoin(clock).selectExpr(*own, f"COALESCE({stirs}, true) AS {_TOUCHED}")
    on = " AND ".join(f"s.{quoted(name)} <=> b.{quoted(name)}" for name in key) or "true"
    both = due.alias("s").join(keys.alias("b"), F.expr(on), "left")
    told = both.selectExpr(*(f"s.{name}" for name in own), f"b.{_BROUGHT} IS NOT NULL OR s.{_TOUCHED} AS {_TOUCHED}")
    return told.where(_TOUCHED).drop(_TOUCHED), told.where(f"NOT {_TOUCHED}").drop(_TOUCHED)


def with_resting(spark: SparkSession, stepped: DataFrame, resting: DataFrame, schema: StructType) -> DataFrame:
    """What was stepped, rows of `state` and what is `said`, and the state that rests beside it."""
    state = F.struct(*map(quoted, schema["state"].dataType.fieldNames()))  # type: ignore[attr-defined]
    nothing = F.lit(None).cast(schema["said"].dataType)
    # Each epoch adds the partitions of what was stepped to those of what rests.
    few = resting.coalesce(int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    return stepped.unionAll(few.select(state.alias("state"), nothing.alias("said")))
