"""Count the blank lines of an epoch's files: they are no records, and are told of all the same (rule X6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.observed_counts import ObservedCounts


@dataclass
class BlankLines:
    """The number of blank lines, some of which Spark has yet to see."""

    here: int = 0
    _seen: list[ObservedCounts] = field(default_factory=list)

    def without(self, lines: DataFrame, blank: str) -> DataFrame:
        """Leave out the lines that meet a condition; they are counted when the frame is first computed."""
        seen = ObservedCounts(lines, F.count_if(F.expr(blank)).alias("blank"))
        self._seen.append(seen)
        return seen.rows.where(f"NOT ({blank})")

    @property
    def total(self) -> int:
        """The number of blank lines, once what was read of the files has been computed."""
        return self.here + sum(int(seen.read()["blank"]) for seen in self._seen)
