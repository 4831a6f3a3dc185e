"""Choose the engine of an epoch or a run: compare what is known before anything is read with the settings' bounds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tailrace.model.base.types import decimal_parts
from tailrace.model.definition.chain import Definition
from tailrace.model.definition.computation import Computation
from tailrace.settings import Settings
from tailrace.sql.records.selections import needs_spark

_BYTES_A_ROW = 400
"""The approximate bytes of an open window in DuckDB, its accumulators included."""


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
class Bounds:
    """The bounds of what fits this process. An `engine` that the settings name takes everything, however large."""

    engine: Engine | None
    memory: int

    @classmethod
    def of(cls, settings: Settings) -> Bounds:
        """Read the bounds from the settings."""
        named = None if settings.engine == "auto" else Engine(settings.engine)
        return cls(named, in_bytes(settings.memory))

    def holds(self, *, bytes: int = 0, rows: int = 0) -> bool:
        """Tell whether so many bytes to read and so many rows of state fit; as DuckDB spills, a state may be larger."""
        if self.engine is not None:
            return self.engine is Engine.DUCKDB
        return bytes <= self.memory and rows * _BYTES_A_ROW <= 4 * self.memory

    @property
    def records(self) -> int | None:
        """The bytes that an epoch's records may take in this process; None: however many they are.

        Three epochs may be there at once: one that is folded, one that waits for that, one that is read.
        """
        return None if self.engine is Engine.DUCKDB else self.memory // 4

    @property
    def windows_unspilt(self) -> int:
        """The maximum number of open windows that fit without spilling, whoever adds up their records."""
        return self.memory // _BYTES_A_ROW

    def for_run(self, bytes: int, definition: Definition | None = None) -> EngineChoice:
        """Choose the engine of a run that reads so many bytes of files; steps written for Spark always run on Spark."""
        fits = self.holds(bytes=bytes)
        how = "are within" if fits else "are more than"
        why = f"the files to read, {_megabytes(bytes)}, {how} TAILRACE_MEMORY, {self.limit}"
        if _for_spark(definition):
            return EngineChoice(Engine.SPARK, "a step is written for Spark")
        if _spells(definition):
            return EngineChoice(Engine.SPARK, _SPELLING)
        if self.engine is not None:
            return self._named(self.engine)
        return EngineChoice(Engine.DUCKDB if fits else Engine.SPARK, why)

    def for_stream(self, definition: Definition) -> EngineChoice:
        """Choose the engine that a stream begins on; it goes over to Spark where an epoch or its state does not fit."""
        if _spells(definition):
            return EngineChoice(Engine.SPARK, _SPELLING)
        state = "keys" if isinstance(definition, Computation) else "open windows"
        why = f"while epochs and {state} are within TAILRACE_MEMORY, {self.limit}"
        if self.engine is not None:
            return self._named(self.engine)
        return EngineChoice(Engine.DUCKDB, f"{why}; Spark takes its steps before" if _for_spark(definition) else why)

    @property
    def limit(self) -> str:
        """The bound of the memory, as text for people."""
        return _megabytes(self.memory)

    def _named(self, engine: Engine) -> EngineChoice:
        return EngineChoice(engine, f"TAILRACE_ENGINE is {engine.value}")


def _for_spark(definition: Definition | None) -> bool:
    if definition is None or isinstance(definition, Computation):
        return False
    return any(needs_spark(stage) for stage in definition.stages)


_SPELLING = "its ids in a registry have more than six decimals, which DuckDB does not write as Spark does"


def _spells(definition: Definition | None) -> bool:
    """Tell whether a computation claims ids that engines write differently: Spark uses exponents from 7 decimals on."""
    if not isinstance(definition, Computation) or definition.once is None:
        return False
    parts = decimal_parts(definition.produced.columns[definition.once.by])
    return parts is not None and parts[1] > 6


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
