"""The parts of a plan: the stages of an epoch in order (rule T4), the state between epochs, and the SQL texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log, log_names
from tailrace.sql.terms import Query


class Execution(Enum):
    """The executor of a stage."""

    DUCKDB = "duckdb"
    """DuckDB in this process; the stage is SQL."""
    SPARK = "spark"
    """Spark's executors; the stage is SQL, a read, or a write."""
    PYTHON = "python"
    """Python code that is called for records or keys in Arrow batches, in this process or on the executors."""
    PROCESS = "process"
    """This process, which may be Spark's driver; the stage is a read of files, a few numbers, or a commit."""


class Commit(Enum):
    """The way in which the rows of an epoch enter the ledger (`lake.commit.branch`)."""

    FILES = "files"
    """This process writes files, and one commit adds them to the table."""
    BRANCH = "branch"
    """Spark appends to the writer's branch, and then main is moved to that branch."""
    BY_SIZE = "by_size"
    """This process writes few rows as files, and Spark appends many rows."""


@dataclass(frozen=True)
class Beginning:
    """The beginning of a stream: its engine, whether Spark's driver may hold windows, whether answers have a table."""

    choice: EngineChoice
    windows_in_driver: bool = True
    answers: bool = True

    @property
    def here(self) -> bool:
        """Whether DuckDB, in this process, folds whole epochs."""
        return self.choice.engine is Engine.DUCKDB

    @property
    def sql(self) -> Execution:
        """The executor of SQL over an epoch's records."""
        return Execution.DUCKDB if self.here else Execution.SPARK

    @property
    def commit(self) -> Commit:
        """The way in which the engine's rows enter a ledger."""
        return Commit.FILES if self.here else Commit.BRANCH


@dataclass(frozen=True)
class Stage:
    """A stage of an epoch: its name, its executor, and its description; `why` is the reason for the executor.

    `query` names the stage's SQL text, if it has one. `facts` has the definition's options for the stage, for programs;
    lengths of time are in microseconds.
    """

    name: str
    execution: Execution
    says: tuple[str, ...]
    why: str = ""
    query: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def stage(name: str, execution: Execution, *says: str, why: str = "", query: str = "", **facts: Any) -> Stage:
    """Make a stage; empty lines of the description are left out."""
    return Stage(name, execution, tuple(filter(None, says)), why, query, facts)


def reader(log: Log, begin: Beginning) -> Execution:
    """Return the executor that reads a log: this process, if DuckDB folds and sources land in the log."""
    return Execution.PROCESS if begin.here and all(part.landed for part in log.parts) else begin.sql


def read_stage(log: Log, begin: Beginning) -> Stage:
    """Make the stage that reads an epoch's records."""
    if len(log.parts) > 1:
        taken = f"{len(log.columns)} columns of the logs {log_names(log.parts)}"
    else:
        (part,) = log.parts
        taken = f"{len(log.columns)} columns of log {part.name}" if part.landed else f"what {log.name} produces"
    return stage("read", reader(log, begin), f"{taken}; the event time is {log.event_time}")


_WRITES = {
    Commit.FILES: "files of this process, which one commit adds",
    Commit.BRANCH: "one append by Spark to a branch, to which main is moved",
    Commit.BY_SIZE: "few rows are files of this process, which one commit adds; many are one append by Spark to a "
    "branch, to which main is moved",
}


def ledger_stage(definition: Definition, commit: Commit, *kinds: str, query: str = "") -> Stage:
    """Make the stage that commits rows of these kinds to the ledger, after the commit of the log (rule X2)."""
    table = ledger_name(definition.name)
    by = Execution.PROCESS if commit is Commit.FILES else Execution.SPARK
    says = f"to {table}: {', '.join(kinds)}, one commit an epoch"
    return stage("ledger", by, says, why=_WRITES[commit], query=query, table=table, kinds=kinds, commit=commit.value)


@dataclass(frozen=True)
class PlannedQuery:
    """A SQL text of an epoch: `gives` describes its rows, and `common` is the text in the common dialect."""

    name: str
    gives: str
    common: Query
    by: Execution

    @property
    def text(self) -> str:
        """The text in the dialect of its engine, as it runs except for the names of views."""
        if self.by is not Execution.DUCKDB:
            return self.common
        # Imported here, because the translator takes longer to load than all other modules of a page.
        from tailrace.engines.duckdb.database.dialect import in_duckdb_once

        return in_duckdb_once(self.common)


@dataclass(frozen=True)
class StateColumn:
    """A column of the state; `holds` describes it. `bytes` is its size in memory, None if not fixed."""

    name: str
    type: str
    holds: str
    bytes: int | None = None


@dataclass(frozen=True)
class KeptState:
    """The state between epochs: its owners (`of`), its place, its columns, and its duration (`says`)."""

    of: str
    place: str
    columns: tuple[StateColumn, ...]
    says: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes of the state of one window or key, without texts."""
        return sum(column.bytes or 0 for column in self.columns)


@dataclass(frozen=True)
class KindPlan:
    """The part of a plan that depends on the kind of definition. `gives` has the columns that readers get."""

    stages: tuple[Stage, ...]
    queries: tuple[PlannedQuery, ...] = ()
    state: KeptState | None = None
    gives: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The plan of a definition in a stream that begins on the chosen engine, and the tables that the stream writes."""

    definition: Definition
    engine: EngineChoice
    kind: KindPlan
    tables: tuple[Contract, ...]

    @property
    def executions(self) -> set[Execution]:
        """The executors of the stages."""
        return {one.execution for one in self.kind.stages}

    def stage(self, name: str) -> Stage:
        """Return the first stage of this name. Raises `StopIteration` if there is none."""
        return next(one for one in self.kind.stages if one.name == name)

    def query(self, name: str) -> PlannedQuery:
        """Return the SQL text of this name. Raises `KeyError` if there is none."""
        return {query.name: query for query in self.kind.queries}[name]
