"""Add to each record of a log the processing time of the record's epoch, on any engine (`Arrivals`)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.filters import Filter, above, at_most, every
from tailrace.model.logs.derived_logs import ARRIVAL, Arrivals
from tailrace.sql.terms import Relation, quoted


def arrival_filter(times: Mapping[int, int], epoch: int, first: int | None, last: int | None) -> Filter:
    """Return the filter for the files with records that arrived at `first` or later, but before `last`.

    `first` and `last` are in microseconds; a bound that is None does not apply. Records of epochs after `epoch` are
    excluded. `times` maps each epoch to its processing time. Processing times never decrease from epoch to epoch, so
    the selected records are those of consecutive epochs.
    """
    before = max((one for one, at in times.items() if first is not None and at < first), default=None)
    after = min((one for one, at in times.items() if last is not None and at >= last), default=None)
    terms = [at_most("_epoch", epoch if after is None else min(epoch, after - 1))]
    return every(*terms, *([] if before is None else [above("_epoch", before)]))


def with_arrival(session: Session, log: Arrivals, records: Relation, times: Mapping[int, int]) -> Relation:
    """Return the parenthesized query that adds the arrival time to a log's records.

    `times` maps each epoch to its processing time.
    """
    known = session.relation_of(epoch_times(times))
    items = ", ".join([*(f"r.{quoted(name)}" for name in log.of.columns), "r._epoch", "r._source", "r._offset"])
    return Relation(f"(SELECT {items}, {arrival(log)} FROM {records} r LEFT JOIN {known} t ON r._epoch = t._epoch)")


def arrival(log: Arrivals) -> str:
    """Return the SQL select-list item that converts `_arrived`, in microseconds, to an instant.

    If `_arrived` is null, the query fails. `_arrived` is null if a tool other than Tailrace expired the snapshot of the
    record's epoch: the epoch's processing time was then never archived.
    """
    # If the processing time is unknown, the query casts this text to a number. On every engine, this cast fails with an
    # error message that contains the text.
    said = f"CONCAT('{UNKNOWN}: log {log.of.name}, epoch ', CAST(r._epoch AS string))"
    return f"TIMESTAMP_MICROS(COALESCE(t._arrived, CAST({said} AS bigint))) AS {quoted(ARRIVAL)}"


UNKNOWN = "it is not known any more when the records of an epoch arrived"
"""The error message of a query that needs the processing time of an epoch, if this time is unknown.

The time is unknown if neither a commit nor an archive contains it.
"""


def epoch_times(times: Mapping[int, int]) -> pa.Table:
    """Build a table of epochs and their processing times in microseconds.

    The table's column names do not occur in any log.
    """
    return pa.table({"_epoch": pa.array(times.keys(), pa.int64()), "_arrived": pa.array(times.values(), pa.int64())})
