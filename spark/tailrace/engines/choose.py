"""Choose the engine of an epoch or a run: its size is compared with the bounds in the settings.

The policy reads no file and starts no engine: its callers count bytes and rows.
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
"""The bytes of files from which the Python of Spark's executors is worth starting."""

PACKED = 6
"""The assumed maximum ratio of a Parquet file's size in memory to its size on disk."""

BROUGHT = PACKED * WORTH
"""The maximum bytes in memory of an epoch that this process reads for Spark; more are for the executors' Python."""

LITTLE = 10_000_000
"""The bytes of files, some hundred thousand rows, up to which DuckDB is as fast on one thread as on several."""

_BYTES_A_ROW = 400
"""The approximate size in bytes of an open window in DuckDB, including its accumulators."""

_UNPACKED = 32
"""The bytes of memory, with all copies, that a byte of a file takes when its records come from Spark to this
process."""


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
    """The demand of a definition on its engine: `steps` says that a step is written for Spark.

    `spark_alone` is the reason why nothing of the definition may run on DuckDB, as a clause for people.
    """

    steps: bool = False
    spark_alone: str | None = None


@singledispatch
def demand(definition: Definition) -> Demand:
    """Return a definition's requirements for an engine."""
    raise KindError("demand on an engine", definition)


def _of_ranged(definition: Ranged) -> Demand:
    return Demand(steps=any(map(needs_spark, definition.stages)))


def _of_computation(definition: Computation) -> Demand:
    """Return the demand of a computation: only Spark writes ids of more than six decimals as text with an exponent."""
    if definition.once is None:
        return Demand()
    parts = decimal_parts(definition.produced.columns[definition.once.by])
    return Demand(spark_alone=_SPELLING if parts is not None and parts[1] > 6 else None)


demand.register(Ranged, _of_ranged)
demand.register(Computation, _of_computation)

_SPELLING = "its ids in a registry have more than six decimals, which DuckDB does not write as Spark does"


@dataclass(frozen=True)
class EnginePolicy:
    """The bounds of this process, and the choices of an engine that follow from them.

    If the settings name an `engine`, it takes everything, however large; `named` is that reason, as a clause for
    people. `windows` is the maximum number of open windows in Spark's driver; None for as many as do not spill.
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
        """The memory limit, as human-readable text."""
        return _megabytes(self.memory)

    def holds(self, *, bytes: int = 0, rows: int = 0) -> bool:
        """Tell whether this process has room for bytes to read and rows of state.

        As DuckDB spills, a state may be larger.
        """
        if self.engine is not None:
            return self.engine is Engine.DUCKDB
        return bytes <= self.memory and rows * _BYTES_A_ROW <= 4 * self.memory

    @property
    def room(self) -> int | None:
        """The maximum bytes of an epoch's records in this process; None for no maximum.

        Three epochs may be in memory at once: one is folded, one waits, one is read. Where the settings name Spark,
        this process reads only epochs so small that Spark would take longer to plan their reading and landing.
        """
        if self.engine is None:
            return self.memory // 4
        return BROUGHT if self.engine is Engine.SPARK else None

    @property
    def driver_windows(self) -> int:
        """The maximum number of open windows in Spark's driver: the setting's, or as many as do not spill."""
        return self.memory // _BYTES_A_ROW if self.windows is None else self.windows

    def takes(self, to_read: Callable[[], int], *, ids: bool) -> bool:
        """Tell whether this process reads an epoch.

        `to_read` counts the bytes to read, and is called only if they matter. `ids` says that the log remembers ids:
        for a stream on Spark they may be too many for this process.
        """
        if self.room is None:
            return True
        if self.engine is Engine.SPARK and ids:
            return False
        return to_read() <= self.room

    def reads(self, bytes: int) -> bool:
        """Tell whether this process reads records of a log again, by their bytes in memory."""
        return self.room is None or bytes <= self.room

    def for_stream(self, definition: Definition) -> EngineChoice:
        """Choose the engine on which a stream begins.

        It moves to Spark where an epoch or its state does not fit this process.
        """
        demanded = demand(definition)
        if (fixed := self._fixed(demanded)) is not None:
            return fixed
        state = "" if definition.state_name is None else f" and {definition.state_name}"
        why = f"while epochs{state} are within TAILRACE_MEMORY, {self.limit}"
        return EngineChoice(Engine.DUCKDB, f"{why}; Spark takes its steps before" if demanded.steps else why)

    def goes_over(self, definition: Definition, *, here: bool, rows: int) -> EngineChoice | None:
        """Choose Spark for a fold that does not fit this process any more; None where it does.

        `here` says that the records of its next epoch are in this process; `rows` is the size of its state.
        """
        if not here:
            why = f"an epoch's records are more than a quarter of TAILRACE_MEMORY, {self.limit}"
        elif not self.holds(rows=rows):
            why = f"{rows:,} {definition.state_name}, too many for TAILRACE_MEMORY, {self.limit}"
        else:
            return None
        return EngineChoice(Engine.SPARK, why)

    def for_run(self, bytes: int, definition: Definition | None = None) -> EngineChoice:
        """Choose the engine of a run by the bytes of files that it reads.

        Steps written for Spark always run on Spark.
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
        """Choose the engine that a definition demands or the settings name; None where neither does."""
        if demanded.spark_alone is not None:
            return EngineChoice(Engine.SPARK, demanded.spark_alone)
        return None if self.engine is None else EngineChoice(self.engine, self.named)

    def threads(self, bytes: int) -> int | None:
        """Return the number of DuckDB's threads for a run, by the bytes that it reads.

        None for one thread for each core.
        """
        return 1 if bytes <= LITTLE else None

    def comes_here(self, bytes: int, definition: Definition) -> bool:
        """Tell whether the results of a run on Spark fit this process, by the bytes of files that the run reads.

        Rows that are not added up to windows are as wide as the records, and not compressed.
        """
        return bytes <= self.memory // (1 if definition.windowed else _UNPACKED)

    @property
    def out_of_room(self) -> str:
        """The reason for a run on Spark after DuckDB had no room for it, as a clause for people."""
        return f"DuckDB had no room for it within TAILRACE_MEMORY, {self.limit}, and TAILRACE_SCRATCH"


def _megabytes(bytes: int) -> str:
    """Format a size in bytes as human-readable text, in megabytes.

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
