"""The parts of a plan: the stages of an epoch in order (rule T4), the state kept between epochs, and the SQL texts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.resources import files
from typing import Any

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log, log_names
from tailrace.sql.terms import Query

TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(files("tailrace.plan").joinpath("texts.toml").read_text("utf-8"))
"""The texts in `texts.toml`, by table and name."""


class Execution(Enum):
    """The executor of a stage: a query engine, Python code, or this process."""

    DUCKDB = "duckdb"
    """DuckDB runs the stage, which is a SQL query, in this process."""
    SPARK = "spark"
    """Spark's executors run the stage, which is a SQL query, a read or a write."""
    PYTHON = "python"
    """The stage is Python code that is called for records or keys in Arrow batches, in this process or on the
    executors.
    """
    PROCESS = "process"
    """This process, which may be Spark's driver, runs the stage. Such a stage reads files, computes a few numbers, or
    commits.
    """


class Commit(Enum):
    """The way in which an epoch's rows are written to the ledger (`lake.commit.branch`)."""

    FILES = "files"
    """This process writes files, and one commit adds the files to the table."""
    BRANCH = "branch"
    """Spark appends the rows to the writer's branch. Then the branch `main` is moved to the head of the writer's
    branch.
    """
    BY_SIZE = "by_size"
    """If there are few rows, this process writes them as files. If there are many rows, Spark appends them."""


@dataclass(frozen=True)
class Beginning:
    """The conditions under which a stream begins.

    `choice` is the engine with which the stream begins. `windows_in_driver` states whether Spark's driver may keep the
    open windows. `answers` states whether the stream writes the answers to a table.
    """

    choice: EngineChoice
    windows_in_driver: bool = True
    answers: bool = True

    @property
    def here(self) -> bool:
        """Whether DuckDB folds whole epochs in this process."""
        return self.choice.engine is Engine.DUCKDB

    @property
    def sql(self) -> Execution:
        """The executor that runs SQL over an epoch's records."""
        return Execution.DUCKDB if self.here else Execution.SPARK

    @property
    def commit(self) -> Commit:
        """The way in which the engine's rows are written to a ledger."""
        return Commit.FILES if self.here else Commit.BRANCH


@dataclass(frozen=True)
class Stage:
    """A stage of an epoch: its name, its executor (`execution`), and its description (`says`).

    `why` is the reason for the choice of the executor. `query` is the name of the stage's SQL text, or empty. `facts`
    contains the definition's options that concern the stage, for programs; durations are in microseconds.
    """

    name: str
    execution: Execution
    says: tuple[str, ...]
    why: str = ""
    query: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def stage(name: str, execution: Execution, *says: str, why: str = "", query: str = "", **facts: Any) -> Stage:
    """Create a stage. Empty lines are removed from the stage's description."""
    return Stage(name, execution, tuple(filter(None, says)), why, query, facts)


def reader(log: Log, begin: Beginning) -> Execution:
    """Return the executor that reads a log.

    This process reads the log if the stream begins on DuckDB and sources write to the log. In all other cases, the
    executor that runs SQL reads the log.
    """
    return Execution.PROCESS if begin.here and all(part.landed for part in log.parts) else begin.sql


def read_stage(log: Log, begin: Beginning) -> Stage:
    """Return the stage that reads an epoch's records from a log."""
    if len(log.parts) > 1:
        taken = f"{len(log.columns)} columns of the logs {log_names(log.parts)}"
    else:
        (part,) = log.parts
        taken = f"{len(log.columns)} columns of log {part.name}" if part.landed else f"what {log.name} produces"
    return stage("read", reader(log, begin), f"{taken}; the event time is {log.event_time}")


def ledger_stage(definition: Definition, commit: Commit, *kinds: str, query: str = "") -> Stage:
    """Return the stage that commits rows of the given kinds to the ledger, after the commit of the log (rule X2)."""
    table = ledger_name(definition.name)
    by = Execution.PROCESS if commit is Commit.FILES else Execution.SPARK
    says = f"to {table}: {', '.join(kinds)}, one commit an epoch"
    why = TEXTS["commit"][commit.value]
    return stage("ledger", by, says, why=why, query=query, table=table, kinds=kinds, commit=commit.value)


@dataclass(frozen=True)
class PlannedQuery:
    """A SQL text that the engine runs in each epoch.

    `gives` describes the rows of the query's result; `common` is the text before its translation to the dialect of the
    engine that runs it.
    """

    name: str
    gives: str
    common: Query
    by: Execution

    @property
    def text(self) -> str:
        """The text in the dialect of its engine. The engine runs the same text, with other names of views."""
        if self.by is not Execution.DUCKDB:
            return self.common
        # The dialect module is imported here, because it takes longer to load than all other modules that a page with a
        # plan needs.
        from tailrace.engines.duckdb.database.dialect import in_duckdb_once

        return in_duckdb_once(self.common)


@dataclass(frozen=True)
class StateColumn:
    """A column of the state that is kept between epochs. `holds` describes the column's content.

    `bytes` is the size of a value in memory, or None if the size is not fixed.
    """

    name: str
    type: str
    holds: str
    bytes: int | None = None


@dataclass(frozen=True)
class KeptState:
    """The state that is kept between epochs.

    `of` describes the keys or windows to which the state belongs, `place` describes where the state is kept, and `says`
    describes how long the state is kept.
    """

    of: str
    place: str
    columns: tuple[StateColumn, ...]
    says: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The size of the state of one window or key, in bytes. Columns whose size is not fixed are not counted."""
        return sum(column.bytes or 0 for column in self.columns)


@dataclass(frozen=True)
class KindPlan:
    """The part of a plan that depends on the kind of definition.

    `gives` maps the name of each column that readers receive to the column's type.
    """

    stages: tuple[Stage, ...]
    queries: tuple[PlannedQuery, ...] = ()
    state: KeptState | None = None
    gives: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The plan of a definition, for a stream that begins on the chosen engine.

    `tables` are the tables that the stream writes.
    """

    definition: Definition
    engine: EngineChoice
    kind: KindPlan
    tables: tuple[Contract, ...]

    def stage(self, name: str) -> Stage:
        """Return the first stage with this name. Raises `StopIteration` if the plan has no such stage."""
        return next(one for one in self.kind.stages if one.name == name)

    def query(self, name: str) -> PlannedQuery:
        """Return the SQL text with this name. Raises `KeyError` if the plan has no such text."""
        return {query.name: query for query in self.kind.queries}[name]
