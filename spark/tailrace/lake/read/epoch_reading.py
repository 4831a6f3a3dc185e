"""Find how to read a namespace's tables as they were at the end of one epoch: from a snapshot, or with a query.

A log or a ledger is read from the snapshot of its last commit up to the end of the epoch. A table of answers is updated
later than its ledger, after a delay that varies. Therefore, the answers at the end of an epoch are computed from the
ledger: each answer is the last pane of its window up to the end of the epoch (rule L2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.types import StructType

from tailrace.lake.catalog.lake import Lake, head_of, lineage, properties_of
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import PANE
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.table_names import LEDGER, ledger_name, rejected_name


class EpochError(LakeError, ValueError):
    """A table cannot be read at an epoch: it has not reached the epoch, or it keeps no snapshot of the epoch."""


def pinned_snapshots(lake: Lake, tables: Iterable[str], epoch: int) -> dict[str, int]:
    """Return the snapshots from which logs and ledgers are read as they were at the end of an epoch.

    Tables that have no epochs, such as tables of runs, are not in the result: they are read in their current state.
    Raises `EpochError` if a table has no snapshot of the epoch.
    """
    found = {}
    for table in tables:
        loaded = lake.table(table)
        # The list begins with the latest commit. After a restore, the commits of the undone epochs therefore come after
        # the commits of the epochs that replaced them.
        history = [(one.snapshot_id, properties_of(one)) for one in lineage(loaded, head_of(loaded).snapshot)]
        epochs = [(snapshot, int(properties["epoch"])) for snapshot, properties in history if "epoch" in properties]
        if not epochs:
            continue
        # A log's table of rejected records gets a commit only in epochs with rejected records, so its last epoch may be
        # earlier.
        if epochs[0][1] < epoch and not table.endswith(rejected_name("")):
            raise EpochError(f"{table} has epochs up to {epochs[0][1]:,}: pass an --epoch of at most that")
        snapshot = next((snapshot for snapshot, one in epochs if one <= epoch), None)
        if snapshot is None:
            raise EpochError(
                f"{table} keeps no snapshot of epoch {epoch:,}, its first is of {epochs[-1][1]:,}: pass a later "
                "--epoch, and set TAILRACE_KEEP_SNAPSHOTS to have the next ones kept for longer"
            )
        found[table] = snapshot
    return found


def has_answers(table: str, tables: Iterable[str]) -> bool:
    """Return True if a table is a table of answers, which follows a ledger."""
    return not table.endswith(LEDGER) and ledger_name(table) in tables


@dataclass(frozen=True)
class PinnedTexts:
    """The SQL relations from which Spark reads tables as they were at the end of an epoch.

    `texts` maps the name of each readable table to a relation, which can follow `SELECT * FROM`. `missing` maps the
    name of each table that cannot be read at the epoch to the reason.
    """

    texts: Mapping[str, str]
    missing: Mapping[str, str]


def pinned_texts(lake: Lake, epoch: int) -> PinnedTexts:
    """Return the SQL relations from which Spark reads the namespace's tables as they were at the end of an epoch.

    Tables that have no epochs are not in the result.
    """
    there, texts, missing = lake.tables, dict[str, str](), dict[str, str]()
    for table in (table for table in there if not has_answers(table, there)):
        try:
            for name, snapshot in pinned_snapshots(lake, [table], epoch).items():
                texts[name] = f"{lake.spark_name(name)} VERSION AS OF {snapshot}"
        except EpochError as error:
            missing[table] = str(error)
    for table in (table for table in there if has_answers(table, there)):
        ledger = ledger_name(table)
        if ledger in texts:
            texts[table] = f"({answers_by_panes(lake, table, texts[ledger])})"
        else:
            missing[table] = missing[ledger]
    return PinnedTexts(texts, missing)


def answers_by_panes(lake: Lake, table: str, rows: str | None = None) -> str:
    """Return SQL that computes a table's answers from the panes in its ledger; the SQL is valid in any dialect.

    If `rows` is given, the SQL selects from the relation `rows` instead of the ledger table.
    """
    ledger = ledger_name(table)
    columns = [field.name for field in lake.table(table).schema().fields]
    answer = next((one.field_type for one in lake.table(ledger).schema().fields if one.name == "answer"), None)
    # In discarding mode, a pane's result columns have only the part of the result that is new since the previous pane.
    # The column `answer` has the whole result so far.
    whole = {field.name for field in answer.fields} if isinstance(answer, StructType) else set()
    items = ", ".join(f"answer.{name} AS {name}" if name in whole else name for name in columns)
    by = ", ".join([*columns[: columns.index(SPAN[0])], *SPAN])
    # If a pane replaces an answer, the retraction of the old answer has the same version as the new pane (rule V1). The
    # new pane is sorted first, so that it counts as the last row of its window.
    order = ", ".join([*(f"{name} DESC" for name in VERSION), "retraction"])
    place = f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS _place"
    panes = f"SELECT *, {place} FROM {rows or ledger} WHERE kind = '{PANE}'"
    return f"SELECT {items} FROM ({panes}) panes WHERE _place = 1 AND NOT retraction"
