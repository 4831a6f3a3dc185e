"""Count a frame's rows by the action that first computes them."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation


class ObservedCounts:
    """Aggregates over a frame that come out of the first action on `rows`, without a job of their own.

    Spark leaves them out of its plan where it finds, as it runs, that a cached frame under them is empty: an empty file
    is enough. They are asked for by a query then.
    """

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        self._frame, self._aggregates, self._seen = frame, aggregates, Observation()
        self.rows = frame.observe(self._seen, *aggregates)

    def read(self) -> dict[str, Any]:
        """Return the values by their names; `rows` must have been computed, as this waits for it."""
        try:
            return self._seen.get
        except Py4JJavaError:
            (row,) = self._frame.agg(*self._aggregates).collect()
            return row.asDict()
