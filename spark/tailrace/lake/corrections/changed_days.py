"""Find the days of event time on which backfills have changed answers."""

from __future__ import annotations

from collections.abc import Iterable
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.corrections.stage_ranges import ranges_of
from tailrace.lake.schema.filters import equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import END_OF_TIME, instant, moment
from tailrace.model.definition.definition import Ranged


def changed_days(lake: Lake, stage: Ranged, generations: Iterable[int], timezone: str) -> list[str]:
    """List the days of the answers that runs with these generations changed or retracted, such as `2013-03-08`.

    The day of a window is the day of its last instant in the time zone; the day of a row is that of its event time. The
    days are read from the runs' own rows in the ledger. The global window has no day.
    """
    ranges, zone = ranges_of(stage), ZoneInfo(timezone)
    ledger, after = lake.table(ledger_name(stage.name)), pa.scalar(ranges.after, pa.duration("us"))
    found = set[int]()
    for generation in generations:
        own = every(equal("kind", ranges.kind), equal("generation", generation), equal("writer", "backfill"))
        for batch in ledger.scan(row_filter=own, selected_fields=(ranges.at,)).to_arrow_batch_reader():
            # There may be many rows, and there are few minutes: the offset of a zone is a number of whole minutes.
            times = pc.subtract(batch[ranges.at].cast(pa.timestamp("us")), after)
            minutes = pc.unique(pc.floor_temporal(times, unit="minute").cast(pa.int64()))
            found.update(micros for micros in minutes.to_pylist() if micros is not None)
    days = {moment(micros).astimezone(zone).date() for micros in found if micros < _LAST}
    return sorted(day.isoformat() for day in days)


_LAST = instant(moment(END_OF_TIME).replace(month=1, day=1))
"""The instant from which on there are no events, but the end of the global window."""
