"""Find how a namespace's tables were as of one epoch: the snapshot to read each from, or the query that has its rows.

A log and a ledger are read from the last commit that they had by then. The answers follow their ledger at their own
pace, so of an epoch they are the last panes that the ledger had by then, which no pace can change (rule L2).
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
    """An epoch that a table has not reached yet, or of which it keeps no snapshot any more."""


def pinned_snapshots(lake: Lake, tables: Iterable[str], epoch: int) -> dict[str, int]:
    """Find the snapshots from which logs and ledgers are read as they were after an epoch.

    Tables that have no epochs, such as those of runs, are not among them: they are read as they are now. Raises
    `EpochError` where a table has no snapshot of the epoch.
    """
    found = {}
    for table in tables:
        loaded = lake.table(table)
        # The latest first; after a restore the epochs that were undone lie behind those that took their place.
        history = [(one.snapshot_id, properties_of(one)) for one in lineage(loaded, head_of(loaded).snapshot)]
        epochs = [(snapshot, int(properties["epoch"])) for snapshot, properties in history if "epoch" in properties]
        if not epochs:
            continue
        # A log's table of rejected records gets a commit only where there are some.
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
    """Tell whether a table is one of answers, which follows a ledger."""
    return not table.endswith(LEDGER) and ledger_name(table) in tables


@dataclass(frozen=True)
class PinnedTexts:
    """The relations by which Spark reads each table as it was after an epoch: `SELECT * FROM` one of them.

    `texts` has them by the tables' names; `missing` says of other tables why they cannot be read so.
    """

    texts: Mapping[str, str]
    missing: Mapping[str, str]


def pinned_texts(lake: Lake, epoch: int) -> PinnedTexts:
    """Write the relations by which Spark reads each table of the namespace as it was after an epoch.

    Tables that have no epochs are not among them.
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
    """Write the SQL of a table's answers from its ledger, as the panes in the ledger give them, in any dialect.

    `rows` stands after FROM in the ledger's place, if given.
    """
    ledger = ledger_name(table)
    columns = [field.name for field in lake.table(table).schema().fields]
    answer = next((one.field_type for one in lake.table(ledger).schema().fields if one.name == "answer"), None)
    # A discarding pane has only what was fresh, and the answer so far beside it.
    whole = {field.name for field in answer.fields} if isinstance(answer, StructType) else set()
    items = ", ".join(f"answer.{name} AS {name}" if name in whole else name for name in columns)
    by = ", ".join([*columns[: columns.index(SPAN[0])], *SPAN])
    # A retraction shares the version of the pane that takes its place (rule V1).
    order = ", ".join([*(f"{name} DESC" for name in VERSION), "retraction"])
    place = f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS _place"
    panes = f"SELECT *, {place} FROM {rows or ledger} WHERE kind = '{PANE}'"
    return f"SELECT {items} FROM ({panes}) panes WHERE _place = 1 AND NOT retraction"
