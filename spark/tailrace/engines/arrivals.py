"""The records of a log with the processing time of the epochs that brought them, for any engine (`Arrivals`)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.filters import Filter, above, at_most, every
from tailrace.model.logs.derived_logs import ARRIVAL, Arrivals
from tailrace.sql.terms import Relation, quoted


def brought_within(times: Mapping[int, int], epoch: int, first: int | None, last: int | None) -> Filter:
    """Return the filter of the files with the records up to an epoch that arrived from `first` to before `last`.

    `times` are the epochs' processing times. They never go back, so the records are of epochs that follow each other,
    between those that are outside.
    """
    before = max((one for one, at in times.items() if first is not None and at < first), default=None)
    after = min((one for one, at in times.items() if last is not None and at >= last), default=None)
    terms = [at_most("_epoch", epoch if after is None else min(epoch, after - 1))]
    return every(*terms, *([] if before is None else [above("_epoch", before)]))


def arrived(session: Session, log: Arrivals, records: Relation, times: Mapping[int, int]) -> Relation:
    """Write the query, in brackets, of records of the log itself with their arrival, by their epochs' times."""
    known = session.relation_of(epoch_times(times))
    items = ", ".join([*(f"r.{quoted(name)}" for name in log.of.columns), "r._epoch", "r._source", "r._offset"])
    return Relation(f"(SELECT {items}, {arrival(log)} FROM {records} r LEFT JOIN {known} t ON r._epoch = t._epoch)")


def arrival(log: Arrivals) -> str:
    """Write the column with the instant of `_arrived`, in microseconds; where that is null the query fails and says so.

    Nothing is guessed. It is null where other tools expired snapshots of the log: no archive has their properties.
    """
    # A text that is no number fails as a number on every engine, and is in the engine's message.
    said = f"CONCAT('{UNKNOWN}: log {log.of.name}, epoch ', CAST(r._epoch AS string))"
    return f"TIMESTAMP_MICROS(COALESCE(t._arrived, CAST({said} AS bigint))) AS {quoted(ARRIVAL)}"


UNKNOWN = "it is not known any more when the records of an epoch arrived"
"""The reason with which a query fails where neither a commit nor an archive says when an epoch was read."""


def epoch_times(times: Mapping[int, int]) -> pa.Table:
    """Make a table of epochs and their processing times, in microseconds; no column of a log is named like these."""
    return pa.table({"_epoch": pa.array(times.keys(), pa.int64()), "_arrived": pa.array(times.values(), pa.int64())})
