"""Count the blank lines in an epoch's files: blank lines are not records, but their number is reported (rule X6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.observed_counts import ObservedCounts


@dataclass
class BlankLines:
    """The number of blank lines in an epoch.

    Blank lines that Spark counts are included only after Spark has computed the epoch's frames.
    """

    here: int = 0
    _seen: list[ObservedCounts] = field(default_factory=list)

    def without(self, lines: DataFrame, blank: str) -> DataFrame:
        """Drop the lines that meet the SQL condition `blank`.

        Spark counts the dropped lines when it first computes the returned frame.
        """
        seen = ObservedCounts(lines, F.count_if(F.expr(blank)).alias("blank"))
        self._seen.append(seen)
        return seen.rows.where(f"NOT ({blank})")

    def counted(self, records: DataFrame, column: str) -> DataFrame:
        """Drop the rows of a frame that have a number of blank lines in a column, and drop the column.

        Spark adds up the numbers when it first computes the returned frame.
        """
        seen = ObservedCounts(records, F.coalesce(F.sum(column), F.lit(0)).alias("blank"))
        self._seen.append(seen)
        return seen.rows.where(F.col(column).isNull()).drop(column)

    @property
    def total(self) -> int:
        """The number of blank lines.

        The number is complete only after Spark has computed all frames from which blank lines are dropped.
        """
        return self.here + sum(int(seen.read()["blank"]) for seen in self._seen)
