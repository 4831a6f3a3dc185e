"""Count the rows of a data frame in the same Spark action that first computes the frame."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation


class ObservedCounts:
    """The values of aggregates over a data frame.

    The first action on `rows` also computes the aggregates, so they need no separate job. If Spark finds at run time
    that a cached frame on which `rows` depends is empty, Spark removes the aggregates from its plan; a single empty
    file can cause this. In that case, a separate query computes the aggregates.
    """

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        self._frame, self._aggregates, self._seen = frame, aggregates, Observation()
        self.rows = frame.observe(self._seen, *aggregates)

    def read(self) -> dict[str, Any]:
        """Return the aggregates' values by name. This call waits until `rows` has been computed."""
        try:
            return self._seen.get
        except Py4JJavaError:
            (row,) = self._frame.agg(*self._aggregates).collect()
            return row.asDict()
