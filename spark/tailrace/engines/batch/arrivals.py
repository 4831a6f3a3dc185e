"""The records of a log with the processing time of the epochs that brought them, for any engine (`Arrivals`)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import arrival_times
from tailrace.lake.schema.filters import Filter, above, at_most, every
from tailrace.model.logs.derived_logs import ARRIVAL, Arrivals
from tailrace.sql.terms import Relation, quoted


def brought_within(lake: Lake, log: Arrivals, epoch: int, first: int | None, last: int | None) -> Filter:
    """Return the filter of the files with the records up to an epoch that arrived from `first` to before `last`.

    Processing time never goes back, so these are of epochs that follow each other, between those that are outside.
    """
    times = arrival_times(lake, log.of.name)
    before = max((one for one, at in times.items() if first is not None and at < first), default=None)
    after = min((one for one, at in times.items() if last is not None and at >= last), default=None)
    terms = [at_most("_epoch", epoch if after is None else min(epoch, after - 1))]
    return every(*terms, *([] if before is None else [above("_epoch", before)]))


def arrived(session: Session, log: Arrivals, records: Relation) -> Relation:
    """Write the query, in brackets, of records of the log itself with their arrival."""
    times = session.relation_of(epoch_times(arrival_times(session.lake, log.of.name)))
    items = ", ".join([*(f"r.{quoted(name)}" for name in log.of.columns), "r._epoch", "r._source", "r._offset"])
    at = f"{moment_of(log, 't.at', 'r._epoch')} AS {quoted(ARRIVAL)}"
    return Relation(f"(SELECT {items}, {at} FROM {records} r LEFT JOIN {times} t ON r._epoch = t.epoch)")


def moment_of(log: Arrivals, at: str, epoch: str) -> str:
    """Write the instant of `at`, microseconds; where that is null the query fails and says so, for nothing is guessed.

    It is null where other tools expired snapshots of the log, whose properties are then in no archive.
    """
    # A text that is no number fails as a number on every engine, and is in the engine's message.
    said = f"CONCAT('{UNKNOWN}: log {log.of.name}, epoch ', CAST({epoch} AS string))"
    return f"TIMESTAMP_MICROS(COALESCE({at}, CAST({said} AS bigint)))"


UNKNOWN = "it is not known any more when the records of an epoch arrived"
"""What a query says that needs the time of an epoch which no commit and no archive has."""


def epoch_times(times: Mapping[int, int]) -> pa.Table:
    """Make a table of epochs and their processing times, in microseconds."""
    columns = {"epoch": pa.array(times.keys(), pa.int64()), "at": pa.array(times.values(), pa.int64())}
    return pa.table(columns)
