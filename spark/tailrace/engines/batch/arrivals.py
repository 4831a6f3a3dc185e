"""The records of a log with the processing time of the epochs that brought them, for any engine (`Arrivals`)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import recorded
from tailrace.lake.schema.filters import Filter, above, at_most, every
from tailrace.model.logs.derived_logs import ARRIVAL, Arrivals
from tailrace.sql.terms import Relation, quoted


def times_of(lake: Lake, log: Arrivals) -> dict[int, int]:
    """Return the processing time of each epoch of the log, in microseconds, as its commits say."""
    return {epoch: commit.clock.processing_time for epoch, commit in recorded(lake, log.of.name).items()}


def brought_within(lake: Lake, log: Arrivals, epoch: int, first: int | None, last: int | None) -> Filter:
    """Return the filter of the files with the records up to an epoch that arrived from `first` to before `last`.

    Processing time never goes back, so these are of epochs that follow each other.
    """
    within = [
        one
        for one, at in times_of(lake, log).items()
        if one <= epoch and (first is None or at >= first) and (last is None or at < last)
    ]
    return every(above("_epoch", min(within, default=epoch) - 1), at_most("_epoch", max(within, default=epoch)))


def arrived(session: Session, log: Arrivals, records: Relation) -> Relation:
    """Write the query, in brackets, of records of the log itself with their arrival."""
    times = session.relation_of(epoch_times(times_of(session.lake, log)))
    items = ", ".join([*(f"r.{quoted(name)}" for name in log.of.columns), "r._epoch", "r._source", "r._offset"])
    at = f"TIMESTAMP_MICROS(t.at) AS {quoted(ARRIVAL)}"
    return Relation(f"(SELECT {items}, {at} FROM {records} r JOIN {times} t ON r._epoch = t.epoch)")


def epoch_times(times: Mapping[int, int]) -> pa.Table:
    """Make a table of epochs and their processing times, in microseconds."""
    columns = {"epoch": pa.array(times.keys(), pa.int64()), "at": pa.array(times.values(), pa.int64())}
    return pa.table(columns)
