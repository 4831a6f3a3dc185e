"""The policy that chooses engines: it compares what is known of an epoch or a run with the bounds in the settings.

It reads no file and starts no engine: its callers say how many bytes and rows there are.
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
"""The bytes of files from which on the Python of Spark's executors is worth its start."""

PACKED = 6
"""The factor by which the content of a Parquet file may be larger in memory than the file."""

BROUGHT = PACKED * WORTH
"""The bytes in memory of an epoch that this process reads for Spark: too few for the executors' Python."""

LITTLE = 10_000_000
"""Bytes of files, some hundred thousand rows, up to which DuckDB is no slower on one thread than on several."""

_BYTES_A_ROW = 400
"""The approximate bytes of an open window in DuckDB, its accumulators included."""

_UNPACKED = 32
"""The bytes of memory, its copies included, that a byte of a file's records takes on its way from Spark to here."""


class Engine(Enum):
    """The engines that run the common SQL."""

    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True)
class EngineChoice:
    """The chosen engine, and the reason as a clause for people."""

    engine: Engine
    why: str

    def __str__(self) -> str:
        return f"{self.engine.value}: {self.why}"


@dataclass(frozen=True)
class Demand:
    """A definition's demand on an engine: `steps` says that a step is written for Spark.

    `spark_alone` is the reason, as a clause for people, where nothing of the definition may run on DuckDB.
    """

    steps: bool = False
    spark_alone: str | None = None


@singledispatch
def demand(definition: Definition) -> Demand:
    """Return a definition's demand on an engine."""
    raise KindError("demand on an engine", definition)


def _of_ranged(definition: Ranged) -> Demand:
    return Demand(steps=any(map(needs_spark, definition.stages)))


def _of_computation(definition: Computation) -> Demand:
    """Spark alone claims ids of more than six decimals: it writes them as text with an exponent."""
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

    An `engine` that is named takes everything, however large; `named` is the reason, as a clause for people.
    `windows` is the maximum number of open windows in Spark's driver; None for as many as do not spill.
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
        """The bound of the memory, as text for people."""
        return _megabytes(self.memory)

    def holds(self, *, bytes: int = 0, rows: int = 0) -> bool:
        """Tell whether so many bytes to read and so many rows of state fit; as DuckDB spills, a state may be larger."""
        if self.engine is not None:
            return self.engine is Engine.DUCKDB
        return bytes <= self.memory and rows * _BYTES_A_ROW <= 4 * self.memory

    @property
    def room(self) -> int | None:
        """The bytes that an epoch's records may take in this process; None: however many they are.

        Three epochs may be there at once: one that is folded, one that waits for that, one that is read. Where Spark is
        named, this process reads the epochs for which planning Spark's reading and landing takes longer.
        """
        if self.engine is None:
            return self.memory // 4
        return BROUGHT if self.engine is Engine.SPARK else None

    @property
    def driver_windows(self) -> int:
        """The maximum number of open windows in Spark's driver: as many as do not spill, unless the settings say."""
        return self.memory // _BYTES_A_ROW if self.windows is None else self.windows

    def takes(self, to_read: Callable[[], int], *, ids: bool) -> bool:
        """Tell whether this process is to read an epoch, by the bytes to read, which are asked for if they matter.

        `ids` says that the log remembers ids. On Spark these may be too many for this process.
        """
        if self.room is None:
            return True
        if self.engine is Engine.SPARK and ids:
            return False
        return to_read() <= self.room

    def reads(self, bytes: int) -> bool:
        """Tell whether this process is to read records of a log again that take so many bytes in memory."""
        return self.room is None or bytes <= self.room

    def for_stream(self, definition: Definition) -> EngineChoice:
        """Choose the engine that a stream begins on; it goes over to Spark where an epoch or its state does not fit."""
        demanded = demand(definition)
        if demanded.spark_alone is not None:
            return EngineChoice(Engine.SPARK, demanded.spark_alone)
        if self.engine is not None:
            return EngineChoice(self.engine, self.named)
        state = "" if definition.state_name is None else f" and {definition.state_name}"
        why = f"while epochs{state} are within TAILRACE_MEMORY, {self.limit}"
        return EngineChoice(Engine.DUCKDB, f"{why}; Spark takes its steps before" if demanded.steps else why)

    def goes_over(self, definition: Definition, *, here: bool, rows: int) -> EngineChoice | None:
        """Choose Spark where a fold of this process has to go over to it; None where it stays.

        `here` says that the records of its next epoch are in this process, `rows` how many its state has.
        """
        if not here:
            why = f"an epoch's records are more than a quarter of TAILRACE_MEMORY, {self.limit}"
        elif not self.holds(rows=rows):
            why = f"{rows:,} {definition.state_name}, too many for TAILRACE_MEMORY, {self.limit}"
        else:
            return None
        return EngineChoice(Engine.SPARK, why)

    def for_run(self, bytes: int, definition: Definition | None = None) -> EngineChoice:
        """Choose the engine of a run that reads so many bytes of files; steps written for Spark always run on Spark."""
        demanded = Demand() if definition is None else demand(definition)
        if demanded.steps:
            return EngineChoice(Engine.SPARK, "a step is written for Spark")
        if demanded.spark_alone is not None:
            return EngineChoice(Engine.SPARK, demanded.spark_alone)
        if self.engine is not None:
            return EngineChoice(self.engine, self.named)
        fits = self.holds(bytes=bytes)
        how = "are within" if fits else "are more than"
        why = f"the files to read, {_megabytes(bytes)}, {how} TAILRACE_MEMORY, {self.limit}"
        return EngineChoice(Engine.DUCKDB if fits else Engine.SPARK, why)

    def threads(self, bytes: int) -> int | None:
        """Return on how many threads DuckDB does a run that reads so many bytes; None for one a core."""
        return 1 if bytes <= LITTLE else None

    def comes_here(self, bytes: int, definition: Definition) -> bool:
        """Tell whether results of a run on Spark that reads so many bytes of files fit this process.

        What is not added up to windows comes out as wide as it went in, and unpacked.
        """
        return bytes <= self.memory // (1 if definition.windowed else _UNPACKED)

    @property
    def out_of_room(self) -> str:
        """The reason, as a clause for people, of a run that Spark does since DuckDB had no room for it."""
        return f"DuckDB had no room for it within TAILRACE_MEMORY, {self.limit}, and TAILRACE_SCRATCH"


def _megabytes(bytes: int) -> str:
    """Format a size in bytes for people, in megabytes.

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
