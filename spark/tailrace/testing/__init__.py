"""A kit for tests of definitions, without a JVM.

>>> from tailrace import Count, Fixed, Log, Pipeline, hours
>>> from tailrace.testing import fold
>>> rides = Log(name="rides", columns={"at": "timestamp", "city": "string"}, event_time="at")
>>> hourly = Pipeline(name="hourly", log=rides, key="city", what={"rides": Count()}, where=Fixed(hours(1)))
>>> fold(hourly, [{"at": "2026-03-01T09:10", "city": "Paris"}]).answers == '''
...     city   window                  rides
...     Paris  2026-03-01T09:00/10:00  1
... '''
True
"""

from typing import TYPE_CHECKING

from tailrace.model.base.lazy_names import lazy_names
from tailrace.model.combiners.laws import LawError
from tailrace.plan.loader import LoadError, load
from tailrace.testing.clocks import ProcessingTime
from tailrace.testing.epochs import Epoch, EpochsError
from tailrace.testing.folds import Output, fold
from tailrace.testing.generated_records import GeneratedColumnError, records_of
from tailrace.testing.given_records import RejectedError, UnwritableError
from tailrace.testing.orders import OrderError, any_order
from tailrace.testing.rows import Rows, RowsError
from tailrace.testing.sql_answers import SqlDifferenceError, SqlError, same_as_sql
from tailrace.testing.tables import TableError
from tailrace.testing.transcripts import TranscriptError, check_transcript

if TYPE_CHECKING:
    from tailrace.testing.batch_cuts import BatchError, check_batches
    from tailrace.testing.batches import same_by_batch
    from tailrace.testing.combiner_laws import obeys
    from tailrace.testing.lakes import BackfillCounts, LakeDoubtError, LakeStream, ScratchLake
else:
    # Importing pyarrow, or the tables of a lake, takes up to a second.
    __getattr__ = lazy_names(
        __name__,
        {
            **dict.fromkeys(
                ("BackfillCounts", "LakeDoubtError", "LakeStream", "ScratchLake"), "tailrace.testing.lakes"
            ),
            **dict.fromkeys(("BatchError", "check_batches"), "tailrace.testing.batch_cuts"),
            "same_by_batch": "tailrace.testing.batches",
            "obeys": "tailrace.testing.combiner_laws",
        },
    )

__all__ = [
    "BackfillCounts",
    "BatchError",
    "Epoch",
    "EpochsError",
    "GeneratedColumnError",
    "LakeDoubtError",
    "LakeStream",
    "LawError",
    "LoadError",
    "OrderError",
    "Output",
    "ProcessingTime",
    "RejectedError",
    "Rows",
    "RowsError",
    "ScratchLake",
    "SqlDifferenceError",
    "SqlError",
    "TableError",
    "TranscriptError",
    "UnwritableError",
    "any_order",
    "check_batches",
    "check_transcript",
    "fold",
    "load",
    "obeys",
    "records_of",
    "same_as_sql",
    "same_by_batch",
]
