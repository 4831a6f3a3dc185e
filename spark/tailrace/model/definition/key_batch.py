"""The input and output of a computation that processes an epoch's records by columns (`Computation.process_batch`).

The meaning of a computation is its code for one record. Code for a batch does the same for many keys at once, over
columns of pyarrow. The model does not know pyarrow, so its columns have the type `Any` here; `engines.python` makes the
batches.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from datetime import datetime
from enum import Enum
from typing import Any, Protocol


class Domain(Enum):
    """The clock that triggers a timer: the watermark, or the processing time of the epochs (MillWheel, 4.6)."""

    EVENT = "event"
    PROCESSING = "processing"


EVENT = Domain.EVENT
"""The domain of a timer that fires when the watermark has passed its instant."""

PROCESSING = Domain.PROCESSING
"""The domain of a timer that fires when the processing time of an epoch has reached its instant."""

KEY = "_key"
"""The column with the number of a row's key in the batch: the key's row in `keys` and in each column of `state`."""


class Batch(Protocol):
    """The keys of an epoch that have a record or a due timer, with their states, timers and records as columns.

    A row of `records` is named by its number, and so is a row of `due`. Everything that the code outputs belongs to
    such a row, as if `process_record` or `process_timer` had output it for this row: rows decide the order of a key's
    productions and timers. Columns are arrays of pyarrow or of NumPy; a single value stands for all rows.
    """

    @property
    def keys(self) -> Any:
        """The table of the key columns, with one row for each key."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The fields of the keys' states: an array for each field, with one element for each key.

        Assign an array to change a field.
        """

    @property
    def records(self) -> Any:
        """The table of the records, with their keys' numbers in `_key`.

        The records are ordered by key; those of a key are in the order in which `process_record` would receive them.
        In `process_timers`, the table is empty.
        """

    @property
    def timers(self) -> Any:
        """The table of the keys' pending timers: `_key`, `name`, `domain`, `at` and `holds`, ordered by key.

        A key's timers are in the order in which they fire. In `process_timers`, timers that fire now are left out.
        """

    @property
    def due(self) -> Any:
        """The table of the timers that fire now, with the columns of `timers`: one for each key, in the keys' order.

        In `process_batch`, the table is empty.
        """

    @property
    def watermark(self) -> datetime:
        """The watermark that `Context.watermark` would return."""

    @property
    def processing_time(self) -> datetime:
        """The epoch's processing time."""

    def produce(self, rows: Any, record: Mapping[str, Any], event_time: Any = None) -> None:
        """Output a record for each of `rows`; compare `Context.produce`.

        `record` has a column for each column of the productions, and `event_time` an instant for each of the rows.
        The lower limit of an event time is the event time of the key's first record in the batch, or the earliest
        `holds` of its timers.
        """

    def set_timers(self, rows: Any, name: Any, at: Any, domain: Domain = EVENT, *, holds: Any = None) -> None:
        """Set a timer for each of `rows`; compare `Context.set_timer`."""

    def delete_timers(self, rows: Any, name: Any) -> None:
        """Delete a timer for each of `rows`. A timer that does not exist is no error."""

    def appended(self, lists: Any, keys: Any, values: Any) -> Any:
        """Return a column of lists, one for each key, with each of `values` appended to the list of its key."""

    def by_record(self, keys: Any) -> None:
        """Leave some keys to `process_record` and `process_timer`: their numbers, or a mask with an element a key.

        What the batch outputs for these keys is dropped. So code for a batch may process the usual case only.
        """
