"""Declare the tables of a log column by column, and define the classes with which all other tables are declared.

A contract is data: the columns with their types and docs, the partitioning, the properties. Contracts are used to
create tables, to write rows, and to print the files in `iceberg_schemas/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.table_names import rejected_name, runs_name
from tailrace.lake.schema.time_spans import reach_of_log, span_terms
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import PLACE, SIGN, Log

PARTIAL, PANE, LATE, REJECTED = "partial", "pane", "late", "rejected"
"""The kinds of rows in a ledger; each kind is stored in separate partitions."""

OPEN = "open"
"""The `reason` of a pane that a backfill writes for a window that a stream can still change.

The streams of later stages read such a pane, but not a backfill's other panes.
"""

PRODUCTION = "production"
"""The kind of an output row in the ledger of a computation, a map or a join; these ledgers have no panes."""

FEEDBACK = "feedback"
"""The kind of row for a record that a computation sends back to itself; the next epoch processes the record."""

CLAIMED = "claimed"
"""The kind of row for an output whose id another computation had already claimed (`model.definition.once`).

This computation did not pass the output on to its readers.
"""

PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.max-snapshot-age-ms": str(30 * 24 * 3600 * 1000),
}

KEPT = "every row, for good"
"""The default description of how long a table's rows are kept. Tailrace never deletes rows because of their age."""

MERGE_ON_READ = {f"write.{command}.mode": "merge-on-read" for command in ("merge", "update", "delete")}


@dataclass(frozen=True)
class Column:
    """A column: the name of its type in Spark SQL, its meaning with units, and whether every row must have a value.

    `was` has the column's former names.
    """

    type: str
    doc: str
    required: bool = False
    was: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contract:
    """The contract of a table: its name in the namespace, its columns in order, and its layout.

    `key` lists the columns whose combined values are unique. Each item of `partition_by` and `sort_by` is the name of a
    column, or a transform of a column such as `day(at)` or `bucket(16, who)`; in `sort_by`, an item may end with
    `desc`. `owner` is the person or team responsible for the table. `retention` states in words how long the table
    keeps its rows.
    """

    table: str
    doc: str
    columns: Mapping[str, Column]
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(PROPERTIES))
    format_version: int = 2
    key: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    owner: str = "unnamed"
    retention: str = KEPT

    @property
    def types(self) -> dict[str, str]:
        """A mapping from the name of each column to its type."""
        return {name: column.type for name, column in self.columns.items()}


@dataclass(frozen=True)
class DefinitionTables:
    """The tables of a definition, other than the tables of its logs.

    `ledger` contains everything that the definition outputs, and gets one commit for each epoch. `keys` names the
    ledger's columns with the key, and `values` names the columns with a result. `answers` has the current answers of
    the windows, `runs` has the backfills, and `registry` has the ids that the definition claims. A field is None if
    definitions of this kind have no such table.

    `step` is the distance in event time between the windows of successive answers, in microseconds; 0 if it is unknown.
    `signals` states whether the definition waits for signals that are sent to its logs. `places` names the ledger's
    columns for the position of a rejected record: one group of columns for each log from which records come. `meta` is
    metadata of the ledger for the tests of a dbt project.
    """

    ledger: Contract
    keys: tuple[str, ...]
    values: tuple[str, ...]
    answers: Contract | None = None
    runs: Contract | None = None
    registry: Contract | None = None
    step: int = 0
    signals: bool = False
    places: tuple[tuple[str, ...], ...] = (SOURCE,)
    meta: Mapping[str, object] = field(default_factory=dict)


def log_contract(log: Log) -> Contract:
    """Declare the table of a log: each record is one row, with the declared columns and the record's origin."""
    declared = {name: Column(type, f"as declared by log {log.name}") for name, type in log.columns.items()}
    key: tuple[str, ...] = PLACE
    if log.signed:
        declared[SIGN] = Column("int", "1 for a row that is there from then on, -1 for one that is there no more")
        key = (*PLACE, SIGN)
    # Parquet pages of version 2 store numbers as differences. Files are therefore a quarter smaller, and are written
    # faster. Spark cannot read booleans from pages of version 2.
    pages = "v1" if any("boolean" in type for type in log.columns.values()) else "v2"
    properties = PROPERTIES | {"write.parquet.page-version": pages}
    doc = f"every record of log {log.name}, once"
    spans = span_terms(log.event_time, reach_of_log(log))
    return Contract(log.name, doc, declared | _provenance(), spans, properties, key=key, sort_by=(log.event_time,))


def rejected_contract(log: Log) -> Contract:
    """Declare the table of a log's rejected records, which could not be parsed into the log's declared columns."""
    columns = {
        "raw": Column("binary", "the record's bytes as they came; a Parquet row as JSON"),
        "error": Column("string", "why it was rejected", required=True),
    }
    return Contract(
        rejected_name(log.name), f"records that log {log.name} rejected", columns | _provenance(), key=PLACE
    )


def _provenance() -> dict[str, Column]:
    return {
        "_epoch": Column("bigint", "the epoch that landed it", required=True),
        "_source": Column("string", "the source's partition: a file, or topic-partition"),
        "_offset": Column("bigint", "its place in the source's partition; with the epoch and partition it is unique"),
        "_arrival": Column("timestamp", "when it reached the log, or became known where the source says so"),
    }


def runs_contract(definition: Definition) -> Contract:
    """Declare the append-only table of runs and their ranges of event time; a run's latest row has the run's status."""
    columns = {
        "run": Column("string", "the run's id", required=True),
        "kind": Column("string", "stream, backfill, apply, rollback or restore", required=True),
        "status": Column("string", "started, committed, gave_way, failed or taken_back", required=True),
        "generation": Column("bigint", "the generation it writes in", required=True),
        "range_start": Column("timestamp", "first instant of the range of window timestamps"),
        "range_end": Column("timestamp", "the instant after the range"),
        "fingerprint": Column("string", "the definition's fingerprint", required=True),
        "log_epoch": Column("bigint", "the epoch that it pinned the log at"),
        "at": Column("timestamp", "when the row was written", required=True),
        "changed": Column("bigint", "windows fired again with another answer, or for the first time"),
        "untouched": Column("bigint", "windows that came out equal"),
        "retracted": Column("bigint", "windows taken back"),
        "reason": Column("string", "why it was run, or why it gave way"),
        "engine": Column("string", "the engine that computed it, and why; none of a stream, whose epochs say it"),
        "inputs": Column("string", "JSON: of each definition that it reads, the last generation seen, then those not"),
    }
    return Contract(runs_name(definition.name), f"runs of {definition.kind_name} {definition.name}", columns)
