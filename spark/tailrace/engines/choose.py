"""Choose the engine of an epoch or a run by comparing the amount of data with the limits in the settings.

The policy reads no files and starts no engine. The caller determines the number of bytes and rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import singledispatch

from tailrace.model.base.types import decimal_parts
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError, Ranged
from tailrace.settings import Settings
from tailrace.sql.records.selections import needs_spark

WORTH = 24 * 2**20
"""The minimum total size of files, in bytes, for which starting the Python workers of Spark's executors saves time."""

PACKED = 6
"""The assumed maximum ratio of a Parquet file's size in memory to its size on disk."""

BROUGHT = PACKED * WORTH
"""The maximum size in memory, in bytes, of an epoch that this process reads for Spark. Python workers of the executors
read larger epochs.
"""

LITTLE = 10_000_000
"""The total size of files, in bytes, up to which DuckDB is as fast on one thread as on several. Files of this size
contain a few hundred thousand rows.
"""

_BYTES_A_ROW = 400
"""The approximate size in bytes of one open window in DuckDB, including its accumulators."""

_UNPACKED = 32
"""The bytes of memory that this process needs per byte of a file, if the records come from Spark.

This number includes all copies of the records.
"""


class Engine(Enum):
    """The engines that run the common SQL."""

    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True)
class EngineChoice:
    """The chosen engine, and the reason for the choice as a human-readable clause."""

    engine: Engine
    why: str

    def __str__(self) -> str:
        return f"{self.engine.value}: {self.why}"


@dataclass(frozen=True)
class Demand:
    """The requirements that a definition has for its engine.

    `steps` is true if one of the definition's steps is written for Spark. `spark_alone` is a human-readable clause with
    the reason why no part of the definition can run on DuckDB. `spark_alone` is None if DuckDB can run some part of the
    definition.
    """

    steps: bool = False
    spark_alone: str | None = None


@singledispatch
def demand(definition: Definition) -> Demand:
    """Return a definition's requirements for its engine."""
    raise KindError("demand on an engine", definition)


def _of_ranged(definition: Ranged) -> Demand:
    return Demand(steps=any(map(needs_spark, definition.stages)))


def _of_computation(definition: Computation) -> Demand:
    """Return a computation's requirements for its engine.

    A registry stores the ids of a computation's output as text. If an id is a decimal with more than six decimal
    places, Spark may write the text with an exponent, but DuckDB never does. A computation with such ids therefore
    requires Spark.
    """
    if definition.once is None:
        return Demand()
    parts = decimal_parts(definition.produced.columns[definition.once.by])
    return Demand(spark_alone=_SPELLING if parts is not None and parts[1] > 6 else None)


demand.register(Ranged, _of_ranged)
demand.register(Computation, _of_computation)

_SPELLING = "its ids in a registry have more than six decimals, which DuckDB does not write as Spark does"


@dataclass(frozen=True)
class EnginePolicy:
    """The limits of this process, and the choices of engine that follow from these limits.

    If the settings name an `engine`, that engine runs all work of any size. `named` is the reason as a human-readable
    clause, such as `TAILRACE_ENGINE is spark`. `windows` is the maximum number of open windows in Spark's driver. If
    `windows` is None, the maximum is the number of windows that DuckDB can keep without spilling.
    """

    engine: Engine | None
    memory: int
    windows: int | None = None
    named: str = ""

    @classmethod
    def of(cls, settings: Settings) -> EnginePolicy:
        """Read the policy from the settings."""
        engine = None if settings.engine == "auto" else Engine(settings.engine)
        named = settings.engine_named or f"TAILRACE_ENGINE is {settings.engine}"
        return cls(engine, in_bytes(settings.memory), settings.windows_in_driver, named)

    @property
    def limit(self) -> str:
        """The memory limit as human-readable text."""
        return _megabytes(self.memory)

    def holds(self, *, bytes: int = 0, rows: int = 0) -> bool:
        """Return True if this process has room to read `bytes` bytes and to keep `rows` rows of state.

        The state may take up to four times the memory limit, because DuckDB can spill.
        """
        if self.engine is not None:
            return self.engine is Engine.DUCKDB
        return bytes <= self.memory and rows * _BYTES_A_ROW <= 4 * self.memory

    @property
    def room(self) -> int | None:
        """The maximum size in bytes of the records of one epoch in this process, or None for no maximum.

        Three epochs can be in memory at once: one being folded, one waiting, and one being read. A stream may also
        read files ahead, for which it takes half of this size. If the settings name Spark, this process reads only
        small epochs: for a small epoch, Spark would need more time for planning than this process needs to read and
        land the epoch.
        """
        if self.engine is None:
            return self.memory // 4
        return BROUGHT if self.engine is Engine.SPARK else None

    @property
    def room_ahead(self) -> int:
        """The maximum size in bytes of files that are read ahead, and of their records: half of an epoch's room.

        If an epoch has no maximum size, its room counts as a quarter of the memory limit.
        """
        return (self.memory // 4 if self.room is None else self.room) // 2

    @property
    def driver_windows(self) -> int:
        """The maximum number of open windows in Spark's driver.

        If the settings give no maximum, the maximum is the number of windows that DuckDB can keep without spilling.
        """
        return self.memory // _BYTES_A_ROW if self.windows is None else self.windows

    def takes(self, to_read: Callable[[], int], *, ids: bool) -> bool:
        """Return True if this process, rather than Spark, should read an epoch from its source.

        The function `to_read` returns the number of bytes to read; it is called only if the answer depends on this
        number. `ids` is true if the log remembers record ids. If the settings name Spark, this process reads no epochs
        of a log that remembers ids, because there may be too many ids for this process's memory.
        """
        if self.room is None:
            return True
        if self.engine is Engine.SPARK and ids:
            return False
        return to_read() <= self.room

    def reads(self, bytes: int) -> bool:
        """Return True if this process, rather than Spark, should re-read records that a log has already landed.

        `bytes` is the records' size in memory.
        """
        return self.room is None or bytes <= self.room

    def for_stream(self, definition: Definition) -> EngineChoice:
        """Choose the engine on which a stream starts to fold a definition.

        The fold moves from DuckDB to Spark if an epoch or the state no longer fits into this process.
        """
        demanded = demand(definition)
        if (fixed := self._fixed(demanded)) is not None:
            return fixed
        state = "" if definition.state_name is None else f" and {definition.state_name}"
        why = f"while epochs{state} are within TAILRACE_MEMORY, {self.limit}"
        return EngineChoice(Engine.DUCKDB, f"{why}; Spark takes its steps before" if demanded.steps else why)

    def goes_over(self, definition: Definition, *, here: bool, rows: int) -> EngineChoice | None:
        """Return the choice of Spark if a fold no longer fits into this process, or None if the fold fits.

        `here` is true if the records of the fold's next epoch are in this process. `rows` is the number of rows of the
        fold's state.
        """
        if not here:
            why = f"an epoch's records are more than a quarter of TAILRACE_MEMORY, {self.limit}"
        elif not self.holds(rows=rows):
            why = f"{rows:,} {definition.state_name}, too many for TAILRACE_MEMORY, {self.limit}"
        else:
            return None
        return EngineChoice(Engine.SPARK, why)

    def for_run(self, bytes: int, definition: Definition | None = None) -> EngineChoice:
        """Choose the engine of a run. The choice depends on the total size in bytes of the files that the run reads.

        A definition with steps that are written for Spark always runs on Spark.
        """
        demanded = Demand() if definition is None else demand(definition)
        if demanded.steps:
            return EngineChoice(Engine.SPARK, "a step is written for Spark")
        if (fixed := self._fixed(demanded)) is not None:
            return fixed
        fits = self.holds(bytes=bytes)
        how = "are within" if fits else "are more than"
        why = f"the files to read, {_megabytes(bytes)}, {how} TAILRACE_MEMORY, {self.limit}"
        return EngineChoice(Engine.DUCKDB if fits else Engine.SPARK, why)

    def _fixed(self, demanded: Demand) -> EngineChoice | None:
        """Return the engine that the definition requires or the settings name.

        Returns None if the definition requires no engine and the settings name no engine.
        """
        if demanded.spark_alone is not None:
            return EngineChoice(Engine.SPARK, demanded.spark_alone)
        return None if self.engine is None else EngineChoice(self.engine, self.named)

    def threads(self, bytes: int) -> int | None:
        """Return the number of DuckDB threads for a run that reads `bytes` bytes; None means `TAILRACE_THREADS`."""
        return 1 if bytes <= LITTLE else None

    def comes_here(self, bytes: int, definition: Definition) -> bool:
        """Return True if the results of a run on Spark fit into this process. The run reads `bytes` bytes of files.

        Without windows, the result rows are not aggregated: they are as wide as the records, and uncompressed. Such
        results need much more memory than the files, so the limit on `bytes` is lower.
        """
        return bytes <= self.memory // (1 if definition.windowed else _UNPACKED)

    @property
    def out_of_room(self) -> str:
        """The human-readable reason why a run is repeated on Spark after DuckDB ran out of memory and spill space."""
        return f"DuckDB had no room for it within TAILRACE_MEMORY, {self.limit}, and TAILRACE_SCRATCH"


def _megabytes(bytes: int) -> str:
    """Format a size in bytes as human-readable text in megabytes.

    >>> _megabytes(1_234_567_890), _megabytes(40_000)
    ('1,235 MB', '0.04 MB')
    """
    size = bytes / 10**6
    return f"{size:,.0f} MB" if size >= 10 else f"{size:.2g} MB"


def in_bytes(size: str) -> int:
    """Convert a size such as `2GB` to bytes.

    >>> in_bytes("2GB")
    2000000000
    """
    return int(size[:-2]) * {"MB": 10**6, "GB": 10**9}[size[-2:]]
