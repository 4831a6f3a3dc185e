"""Tailrace: one windowed pipeline definition, run as a stream and as backfills, into the same Iceberg tables.

This module exports the classes and functions with which definitions are written. These classes and functions need only
the standard library:

>>> from tailrace import Count, Fixed, Log, Pipeline, hours
>>> rides = Log(name="rides", columns={"at": "timestamp", "city": "string"}, event_time="at")
>>> Pipeline(name="hourly_rides", log=rides, key="city", what={"rides": Count()}, where=Fixed(hours(1))).results
{'rides': 'bigint'}
"""

from tailrace.model.base.conditions import Contains, Match, Missing
from tailrace.model.base.errors import DefinitionError, RecordError, TailraceError
from tailrace.model.base.expressions import Col, If, Value
from tailrace.model.base.time import days, hours, minutes, seconds
from tailrace.model.combiners.basic import AllTrue, AnyTrue, AnyValue, Count, Max, Mean, Min, Sum
from tailrace.model.combiners.first_last import First, Last
from tailrace.model.combiners.lists import Collect, Distinct, Highest, Quantile, TopK
from tailrace.model.combiners.own import OwnCombiner, OwnWindows
from tailrace.model.combiners.sketches import ApproxDistinct, ApproxQuantile
from tailrace.model.combiners.variance import StdDev, Variance
from tailrace.model.definition.batch_steps import EachBatch
from tailrace.model.definition.computation import EVENT, PROCESSING, Computation, Context, Field, Timer
from tailrace.model.definition.join import Join
from tailrace.model.definition.key_batch import Batch
from tailrace.model.definition.map import Map
from tailrace.model.definition.once import Once
from tailrace.model.definition.packed_columns import Explode, Pack, Unpack
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive, Each, SparkColumns, SparkFrame
from tailrace.model.logs.changes import Changes
from tailrace.model.logs.csv_options import Csv
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import BoundedDisorder, Injected, ObservedLag
from tailrace.model.triggers.combinators import AfterWatermark, AllOf, AnyOf, Repeat, Sequence, Until
from tailrace.model.triggers.punctuation import AfterBytes, AfterMatch, AfterPattern
from tailrace.model.triggers.trigger import (
    AfterCount,
    AfterDelay,
    AfterSignal,
    AtPercentile,
    AtWatermark,
    Every,
    Never,
)
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import ACCUMULATING, DISCARDING, EARLIEST, END_OF_WINDOW, LATEST, RETRACTING
from tailrace.model.windows.windows import Fixed, Global, Sessions, Sliding, Window

__version__ = "0.9.0"

__all__ = [
    "ACCUMULATING",
    "DISCARDING",
    "EARLIEST",
    "END_OF_WINDOW",
    "EVENT",
    "LATEST",
    "PROCESSING",
    "RETRACTING",
    "AfterBytes",
    "AfterCount",
    "AfterDelay",
    "AfterMatch",
    "AfterPattern",
    "AfterSignal",
    "AfterWatermark",
    "AllOf",
    "AllTrue",
    "AnyOf",
    "AnyTrue",
    "AnyValue",
    "ApproxDistinct",
    "ApproxQuantile",
    "Arrivals",
    "AtPercentile",
    "AtWatermark",
    "Batch",
    "BoundedDisorder",
    "Calendar",
    "Changes",
    "Col",
    "Collect",
    "Computation",
    "Contains",
    "Context",
    "Count",
    "Csv",
    "DefinitionError",
    "Derive",
    "Distinct",
    "Each",
    "EachBatch",
    "Every",
    "Explode",
    "Field",
    "First",
    "Fixed",
    "Global",
    "Highest",
    "If",
    "Injected",
    "Join",
    "Last",
    "Log",
    "Map",
    "Match",
    "Max",
    "Mean",
    "Min",
    "Missing",
    "Never",
    "ObservedLag",
    "Once",
    "OwnCombiner",
    "OwnWindows",
    "Pack",
    "Pipeline",
    "Quantile",
    "RecordError",
    "Repeat",
    "Sequence",
    "Sessions",
    "Sliding",
    "SparkColumns",
    "SparkFrame",
    "StdDev",
    "Sum",
    "TailraceError",
    "Timer",
    "TopK",
    "Union",
    "Unpack",
    "Until",
    "Value",
    "Variance",
    "Window",
    "days",
    "hours",
    "minutes",
    "seconds",
]
