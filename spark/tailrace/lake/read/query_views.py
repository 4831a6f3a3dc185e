"""Run read-only SQL queries, on any engine, over a lake's tables and over views of each kind of ledger row."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import MEANING
from tailrace.lake.read.epoch_reading import answers_by_panes, has_answers, pinned_snapshots
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import CLAIMED, LATE, PANE, PARTIAL, PRODUCTION
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.table_names import LEDGER
from tailrace.model.definition.fingerprint import decode_meaning
from tailrace.model.definition.join import TAKES_BACK

KINDS = {"panes": PANE, "late": LATE, "state": PARTIAL, "produced": PRODUCTION, "claimed": CLAIMED}
"""The suffixes of a ledger's views, one for each kind of row: `hourly__panes` has the panes of `hourly__ledger`."""

ROWS = "rows"
"""The suffix of the view with a map's or join's current rows, without rows that were retracted or replaced by a run."""


class QueryError(LakeError, ValueError):
    """The engine rejected a user's SQL query; the message is a single line."""


ALLOWED = (
    "`tailrace sql` only reads: expected one SELECT (or WITH, VALUES, UNION), or SHOW, DESCRIBE, EXPLAIN of one, over "
    "the lake's tables and views, with functions that compute from their arguments (docs/reading.md)"
)
"""The part of an error message that states what a query may contain."""


def refusal(found: str) -> QueryError:
    """Return an error for a query that does more than read tables; the error message states what is allowed."""
    return QueryError(f"{found}: {ALLOWED}")


def unknown_table(parts: Iterable[str]) -> QueryError:
    """Return an error for a name in a query that is not the name of a table or view in the lake."""
    return refusal(f"{'.'.join(filter(None, parts))} is no table or view of the lake")


class Reading(NamedTuple):
    """The SQL of each view that a query reads, and the snapshot of each table that is read in a past state."""

    views: dict[str, str]
    snapshots: dict[str, int]


def plan_reading(lake: Lake, query: str, epoch: int | None = None, quote: str = '"') -> Reading:
    """Plan how to read the tables that a query names: in their current state, or at the end of `epoch`.

    `quote` is the character that the engine uses to quote names. Raises `EpochError` if a table has no snapshot of the
    epoch.
    """
    texts = _views(lake, query, quote)
    if epoch is None:
        return Reading(texts, {})
    there = tables(lake)
    texts |= {
        table: answers_by_panes(lake, table) for table in there if has_answers(table, there) and mentions(table, query)
    }
    wanted = " ".join([query, *texts.values()])
    others = [table for table in there if table not in texts and mentions(table, wanted)]
    return Reading(texts, pinned_snapshots(lake, others, epoch))


def _views(lake: Lake, query: str, quote: str) -> dict[str, str]:
    """Return the views of ledger rows that a query names, each with the SQL that selects the view's rows."""
    texts = {}
    for table in tables(lake):
        if table.endswith(LEDGER):
            for name, kind in KINDS.items():
                view = f"{table.removesuffix(LEDGER)}__{name}"
                if mentions(view, query):
                    columns = lake.table(table).schema().column_names if kind == PANE else []
                    items = ", ".join(["*", *_settled_index(columns, quote)])
                    texts[view] = f"SELECT {items} FROM {table} WHERE kind = '{kind}'"
            view = f"{table.removesuffix(LEDGER)}__{ROWS}"
            if mentions(view, query):
                held = lake.table(table)
                texts[view] = standing_rows(table, [one.name for one in held.schema().fields], held.properties, quote)
    return texts


def _settled_index(columns: Sequence[str], quote: str) -> Iterator[str]:
    """Yield an SQL column with the index of each pane among the panes of its window that are not early.

    The function `settled_indexes` computes the same index in Python. If a query does not select this column, the engine
    does not compute it. `columns` are the ledger's columns; if they have no `pane_index`, nothing is yielded.
    """
    if "pane_index" in columns:
        key = [f"{quote}{name}{quote}" for name in columns[1 : columns.index(SPAN[0])]]
        window = f"PARTITION BY {', '.join([*key, *SPAN])}, generation ORDER BY epoch, pane_index"
        counts = "NOT retraction AND timing <> 'early'"
        place = f"COUNT(CASE WHEN {counts} THEN 1 END) OVER ({window}) - 1"
        yield f"CASE WHEN {counts} THEN {place} END AS settled_index"


def standing_rows(ledger: str, columns: Collection[str], properties: Mapping[str, str], quote: str) -> str:
    """Return SQL for the current rows in the ledger of a map or a join; the SQL is valid in any dialect.

    The SQL selects the same rows as `sql.results.output_rows.OutputRows.current`. A backfill's row replaces earlier
    rows for the same record or the same pair. A joined pair is identified by the positions of its two records and by
    its window. If the join's stream may have retracted pairs, a pair is instead identified by all its values.
    """
    if decode_meaning(properties.get(MEANING) or "{}").get(TAKES_BACK):
        return _given_less_taken(ledger, [f"{quote}{name}{quote}" for name in columns])
    sides = ("left", "right") if "left_epoch" in columns else ("source",)
    place = [f"{side}_{part}" for side in sides for part in ("epoch", "partition", "offset")]
    place += [name for name in ("window_start",) if len(sides) == 2 and name in columns]
    same = " AND ".join(f"m.{name} IS NOT DISTINCT FROM r.{name}" for name in place)
    higher = f"SELECT 1 FROM {ledger} m WHERE m.writer = 'backfill' AND {same} AND m.generation > r.generation"
    rows = f"SELECT * FROM {ledger} r WHERE r.kind = '{PRODUCTION}' AND NOT r.retraction"
    return f"{rows} AND NOT EXISTS ({higher})"


def _given_less_taken(ledger: str, columns: Sequence[str]) -> str:
    """Return SQL for the rows of a join's ledger that were output and not retracted.

    If N equal rows were output and M of these rows were retracted, the latest N - M rows are selected.
    """
    about = ("kind", "generation", "epoch", "retraction", "processing_time", "writer")
    says = ", ".join(name for name in columns if name[1:-1] not in about)
    place = f"ROW_NUMBER() OVER (PARTITION BY {says}, retraction ORDER BY generation DESC, epoch DESC) AS _place"
    stand = f"SUM(CASE WHEN retraction THEN -1 ELSE 1 END) OVER (PARTITION BY {says}) AS _stand"
    rows = f"SELECT *, {place}, {stand} FROM {ledger} WHERE kind = '{PRODUCTION}'"
    return f"SELECT {', '.join(columns)} FROM ({rows}) r WHERE NOT retraction AND _place <= _stand"


def tables(lake: Lake) -> list[str]:
    """Return the sorted names of the tables in the lake's namespace. Raises `LakeError` if there is no lake."""
    if not lake.exists:
        where = f"{lake.settings.warehouse}{lake.settings.unplaced}"
        raise LakeError(f"there is no lake in {where}: set TAILRACE_WAREHOUSE to the lake that is meant")
    return lake.tables


def first_line(text: str) -> str:
    """Return the first non-empty line of an engine's error message, without the error code.

    >>> first_line("\\n[PARSE_SYNTAX_ERROR] Syntax error at 'x'. SQLSTATE: 42601 (line 1, pos 7)\\n\\n== SQL ==")
    "Syntax error at 'x'. (line 1, pos 7)"

    If all lines are empty, the returned text states that the engine said nothing.
    """
    line = next((one.strip() for one in text.splitlines() if one.strip()), "the engine says nothing")
    return re.sub(r" ?SQLSTATE: \w+;?", "", re.sub(r"^\[[A-Z0-9_.]+\] ", "", line)).strip()


def mentions(name: str, query: str) -> bool:
    """Return True if a name occurs as a word anywhere in a query's text."""
    return re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE) is not None


def extension(name: str) -> Path:
    """Return the path of a DuckDB extension that was installed as a Python package; nothing is downloaded.

    Raises `LakeError` if the extension is not installed.
    """
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    place = None if found is None or found.origin is None else Path(found.origin).parent
    file = None if place is None else next(place.rglob("*.duckdb_extension"), None)
    if file is None:
        raise LakeError(
            f"DuckDB's extension {name} is not installed: pip install 'tailrace[duckdb]', or leave --engine out"
        )
    return file
