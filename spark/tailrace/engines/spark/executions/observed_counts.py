"""Count the rows of a frame with the action that first computes them."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation


class ObservedCounts:
    """Aggregates over a frame that are computed with the first action on `rows`, without another job.

    Spark drops them from its plan where it finds at run time that a cached frame below them is empty, for which an
    empty file is enough. Then a query computes them.
    """

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        self._frame, self._aggregates, self._seen = frame, aggregates, Observation()
        self.rows = frame.observe(self._seen, *aggregates)

    def read(self) -> dict[str, Any]:
        """Return the values by name; this waits until `rows` is computed."""
        try:
            return self._seen.get
        except Py4JJavaError:
            (row,) = self._frame.agg(*self._aggregates).collect()
            return row.asDict()
