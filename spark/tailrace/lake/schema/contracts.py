"""Define the classes with which tables are declared, and declare the tables of a log and the table of runs.

A contract is data: the columns with their types and docs, the partitioning, the properties. Contracts are used to
create tables, to write rows, and to print the files in `iceberg_schemas/`. The columns that do not depend on a
definition are listed in `columns.toml`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

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

PAGES, DIFFERENCES = "write.parquet.page-version", "v2"
"""The property of the version of Parquet's pages, and its value for tables whose files store numbers as differences.

Only logs have this value. Other programs read ledgers and answers, too, and the reader that older versions of Iceberg
have for Spark fails on differences.
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


@cache
def _column_entries() -> dict[str, dict[str, dict[str, Any]]]:
    """Read `columns.toml`: for each kind of table, the entries of its columns."""
    return tomllib.loads(files(__package__).joinpath("columns.toml").read_text("utf-8"))


def declared_columns(
    table: str, words: Mapping[str, str] | None = None, **own: str | Mapping[str, Column] | None
) -> dict[str, Column]:
    """Return the columns that `columns.toml` lists for a kind of table, in order.

    An entry without a type depends on the definition. The argument with the entry's name, in `own`, is either the type
    of the entry's column, or the columns that take the place of the entry. If this argument is missing or None, the
    entry is skipped. `words` has the texts that replace the words in braces in the descriptions.

    >>> cities = {"city": Column("string", "as declared by log rides")}
    >>> [*declared_columns("log", declared=cities)]
    ['city', '_epoch', '_source', '_offset', '_arrival']
    """
    columns: dict[str, Column] = {}
    for name, entry in _column_entries()[table].items():
        found = entry.get("type") or own.get(name)
        if isinstance(found, str):
            columns[name] = Column(found, entry["doc"].format_map(words or {}), entry.get("required", False))
        elif found is not None:
            columns |= found
    return columns


PLACES = "tailrace.places"
"""The name of a log's table property with the places of columns in the records that are landed (`Log.fields`)."""


def places_text(log: Log) -> str:
    """Return the text of the property `PLACES`, in JSON; a column that is not in it has its place by its own name."""
    return json.dumps(dict(log.fields), sort_keys=True)


def log_contract(log: Log) -> Contract:
    """Declare the table of a log: each record is one row, with the declared columns and the record's origin."""
    declared = {name: Column(type, f"as declared by log {log.name}") for name, type in log.columns.items()}
    key: tuple[str, ...] = PLACE
    if log.signed:
        declared[SIGN] = Column("int", "1 for a row that is there from then on, -1 for one that is there no more")
        key = (*PLACE, SIGN)
    # Parquet pages of version 2 store numbers as differences. Files are therefore a quarter smaller, and are written
    # faster. Spark cannot read booleans from pages of version 2.
    pages = "v1" if any("boolean" in type for type in log.columns.values()) else DIFFERENCES
    properties = PROPERTIES | {PAGES: pages}
    doc = f"every record of log {log.name}, once"
    spans, columns = span_terms(log.event_time, reach_of_log(log)), declared_columns("log", declared=declared)
    return Contract(log.name, doc, columns, spans, properties, key=key, sort_by=(log.event_time,))


def landed_contract(log: Log) -> Contract:
    """Declare the table of a log as a stream creates it: its property `PLACES` has the places of columns in records.

    The contract of the log itself says nothing of records before they are landed.
    """
    contract = log_contract(log)
    return replace(contract, properties={**contract.properties, PLACES: places_text(log)})


def rejected_contract(log: Log) -> Contract:
    """Declare the table of a log's rejected records, which could not be parsed into the log's declared columns."""
    columns = declared_columns("log", declared=declared_columns("rejected"))
    return Contract(rejected_name(log.name), f"records that log {log.name} rejected", columns, key=PLACE)


def runs_contract(definition: Definition) -> Contract:
    """Declare the append-only table of runs and their ranges of event time; a run's latest row has the run's status."""
    doc = f"runs of {definition.kind_name} {definition.name}"
    return Contract(runs_name(definition.name), doc, declared_columns("runs"))
