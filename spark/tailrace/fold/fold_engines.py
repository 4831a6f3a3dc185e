"""Choose the engine of each fold in a stream: a fold begins on DuckDB in this process, and may move to Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tailrace.engines.choose import PACKED, Engine, EnginePolicy
from tailrace.engines.duckdb.engine import DuckEngine
from tailrace.engines.protocol import AnySide, BundleRecords, is_here
from tailrace.fold.fold import PassedEpoch
from tailrace.ingest.plain_columns import row_bytes
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.filters import above, at_most, every
from tailrace.model.base.clock import Clock
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import least
from tailrace.sql.records.ways import runs_in_sql

if TYPE_CHECKING:
    from tailrace.engines.spark.engine import SparkEngine
    from tailrace.engines.spark.session import Starting


class StreamEngines:
    """The engines of one stream, DuckDB and Spark, and the policy that chooses between them."""

    def __init__(self, spark: Starting, lake: Lake) -> None:
        self.lake, self.policy = lake, EnginePolicy.of(lake.settings)
        self.duck = DuckEngine(lake, lambda definition, bundle: self.spark.stepped(definition, bundle))
        self._starting = spark

    @cached_property
    def spark(self) -> SparkEngine:
        """The Spark engine. Spark's packages are imported when a fold first needs them."""
        from tailrace.engines.spark.engine import SparkEngine

        return SparkEngine(self._starting, self.lake, self.duck)

    def close(self) -> None:
        """Close the DuckDB database of this process."""
        self.duck.close()

    def first(self, definition: Definition) -> AnySide:
        """Open the first `Side` of a definition's fold, which runs the definition on DuckDB or on Spark."""
        choice = self.policy.for_stream(definition)
        on_spark = choice.engine is Engine.SPARK
        return (self.spark.first_side if on_spark else self.duck.side)(definition, choice)

    def beside(self, definition: Definition, bundles: Iterable[BundleRecords]) -> AnySide:
        """Open an additional `Side` of a definition, which does not affect the `Side` of the definition's fold.

        The additional `Side` is on an engine that can process these bundles.
        """
        choice = self.policy.for_stream(definition)
        engine = self.spark if choice.engine is Engine.SPARK else self.having(bundles)
        return engine.side(definition, choice)

    def next(self, side: AnySide, definition: Definition, bundle: BundleRecords, state: Any) -> AnySide:
        """Return the `Side` that processes a fold's next bundle.

        A fold that has moved to Spark stays there until a restart.
        """
        if not side.direct:
            return self.spark.next_side(side, definition, bundle, state)
        choice = self.policy.goes_over(definition, here=is_here(bundle), rows=state.count)
        return side if choice is None else self.spark.side_taking(definition, choice, bundle, state)

    def compute_here(self, side: AnySide, definition: Definition, bundle: BundleRecords, state: Any) -> bool:
        """Return True if native code of this process runs a fold's next epoch, without Spark and without code of the
        user.
        """
        if not side.direct or not is_here(bundle) or not runs_in_sql(definition):
            return False
        return self.policy.goes_over(definition, here=True, rows=state.count) is None

    def having(self, bundles: Iterable[BundleRecords]) -> DuckEngine | SparkEngine:
        """Return the engine that can process these bundles: DuckDB if all bundles are in this process, otherwise
        Spark.
        """
        return self.duck if all(map(is_here, bundles)) else self.spark

    def read(self, log: Log, after: int, until: int) -> BundleRecords:
        """Read a log's records from the epochs after `after` up to `until`; the size of the records determines the
        engine.
        """
        where = every(above("_epoch", after), at_most("_epoch", until))
        files = [task.file for task in self.lake.table(log.name).scan(row_filter=where).plan_files()]
        # The number of records is also considered, because repeated values take almost no space in files, but much
        # space in memory.
        rows_take = row_bytes(log, "") * sum(file.record_count for file in files)
        size = max(PACKED * sum(file.file_size_in_bytes for file in files), rows_take)
        return (self.duck if self.policy.reads(size) else self.spark).read(log, after, until)

    def together(self, union: Union, passed: Mapping[str, PassedEpoch]) -> PassedEpoch:
        """Combine the epochs of a union's logs into one epoch (rule T3).

        `passed` maps each log's name in the union to the log's epoch.
        """
        epochs = list(passed.values())
        onward = least((one.onward, one.idle) for one in epochs)
        signals = tuple(sorted({name for one in epochs for name in one.clock.signals}))
        now = max(one.clock.processing_time for one in epochs)
        bundles = {side: one.bundle for side, one in passed.items()}
        bundle = self.having(bundles.values()).united(union, bundles)
        return PassedEpoch(bundle, Clock(epochs[0].clock.epoch, onward, now, signals), onward)

    def without(self, passed: PassedEpoch, columns: Sequence[str]) -> PassedEpoch:
        """Return an epoch without some columns of its records."""
        return replace(passed, bundle=self.having([passed.bundle]).without(passed.bundle, columns))

    def arrived(self, log: Arrivals, passed: PassedEpoch, times: Mapping[int, int] | None = None) -> PassedEpoch:
        """Convert a log's epoch to the epoch of its `Arrivals` log, in which arrival times are the event times.

        `times` maps epochs to their processing times. `times` is needed if the records come from several epochs.
        """
        now = passed.clock.processing_time
        engine = self.having([passed.bundle])
        bundle = engine.arrived(log, passed.bundle, {passed.clock.epoch: now} if times is None else times)
        return PassedEpoch(bundle, replace(passed.clock, watermark=now), now)
