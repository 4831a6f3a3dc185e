"""Give the records of a log the processing time of their epochs, for any engine (`Arrivals`)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.filters import Filter, above, at_most, every
from tailrace.model.logs.derived_logs import ARRIVAL, Arrivals
from tailrace.sql.terms import Relation, quoted


def arrival_filter(times: Mapping[int, int], epoch: int, first: int | None, last: int | None) -> Filter:
    """Return the filter of the files with records up to an epoch that arrived from `first` to before `last`.

    `times` are the epochs' processing times. They never go back, so the records are of consecutive epochs.
    """
    before = max((one for one, at in times.items() if first is not None and at < first), default=None)
    after = min((one for one, at in times.items() if last is not None and at >= last), default=None)
    terms = [at_most("_epoch", epoch if after is None else min(epoch, after - 1))]
    return every(*terms, *([] if before is None else [above("_epoch", before)]))


def with_arrival(session: Session, log: Arrivals, records: Relation, times: Mapping[int, int]) -> Relation:
    """Write the query, in brackets, of a log's records with their arrival.

    `times` are the processing times of epochs.
    """
    known = session.relation_of(epoch_times(times))
    items = ", ".join([*(f"r.{quoted(name)}" for name in log.of.columns), "r._epoch", "r._source", "r._offset"])
    return Relation(f"(SELECT {items}, {arrival(log)} FROM {records} r LEFT JOIN {known} t ON r._epoch = t._epoch)")


def arrival(log: Arrivals) -> str:
    """Write the column with the instant `_arrived`, which is in microseconds; a query fails where it is null.

    It is null where other tools expired snapshots of the log, as no archive has the properties of these snapshots.
    """
    # On every engine the cast of this text to a number fails with the text in its message.
    said = f"CONCAT('{UNKNOWN}: log {log.of.name}, epoch ', CAST(r._epoch AS string))"
    return f"TIMESTAMP_MICROS(COALESCE(t._arrived, CAST({said} AS bigint))) AS {quoted(ARRIVAL)}"


UNKNOWN = "it is not known any more when the records of an epoch arrived"
"""The message of a query that fails because neither a commit nor an archive says when an epoch was read."""


def epoch_times(times: Mapping[int, int]) -> pa.Table:
    """Make a table of epochs and their processing times, in microseconds.

    No column of a log has the names of its columns.
    """
    return pa.table({"_epoch": pa.array(times.keys(), pa.int64()), "_arrived": pa.array(times.values(), pa.int64())})
