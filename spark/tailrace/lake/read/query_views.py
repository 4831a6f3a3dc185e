"""Query a lake's tables, and views of a ledger's rows by kind, with SQL on any engine; queries only read."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import MEANING
from tailrace.lake.read.epoch_reading import answers_by_panes, has_answers, pinned_snapshots
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import CLAIMED, LATE, PANE, PARTIAL, PRODUCTION
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.table_names import LEDGER
from tailrace.model.definition.fingerprint import decode_meaning
from tailrace.model.definition.join import TAKES_BACK

KINDS = {"panes": PANE, "late": LATE, "state": PARTIAL, "produced": PRODUCTION, "claimed": CLAIMED}
"""The endings of the views of a ledger's rows of each kind: `hourly__panes` are the panes of `hourly__ledger`."""

ROWS = "rows"
"""The ending of the view of a map's or a join's rows that stand: no retractions, none that a run gave again since."""


class QueryError(LakeError, ValueError):
    """SQL that an engine refuses. The message is one line."""


ALLOWED = (
    "`tailrace sql` only reads: expected one SELECT (or WITH, VALUES, UNION), or SHOW, DESCRIBE, EXPLAIN of one, over "
    "the lake's tables and views, with functions that compute from their arguments (docs/reading.md)"
)
"""What a query may have, as an error says it."""


def refusal(found: str) -> QueryError:
    """Describe what a query has that does more than read the lake's tables, and what may be there instead."""
    return QueryError(f"{found}: {ALLOWED}")


def unknown_table(parts: Iterable[str]) -> QueryError:
    """Describe a name that a query reads from and that is none of the lake's."""
    return refusal(f"{'.'.join(filter(None, parts))} is no table or view of the lake")


class Reading(NamedTuple):
    """How a query reads a lake: its views, each with its SQL, and the snapshots of the tables that are not as now."""

    views: dict[str, str]
    snapshots: dict[str, int]


def plan_reading(lake: Lake, query: str, epoch: int | None = None, quote: str = '"') -> Reading:
    """Find how a query reads the tables that it names: as they are now, or as of an epoch of their logs.

    `quote` is what the engine has around a name. Raises `EpochError` where a table has no snapshot of the epoch.
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
    """Find the views of a ledger's rows that a query names, each with the SQL that selects the rows."""
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
                texts[view] = standing_rows(table, held.schema().column_names, held.properties, quote)
    return texts


def _settled_index(columns: Sequence[str], quote: str) -> Iterator[str]:
    """Write a pane's place among those of its window that are not early, as `settled_indexes` of the model has it.

    A query that does not name it does not compute it. `columns` are the ledger's.
    """
    if "pane_index" in columns:
        key = [f"{quote}{name}{quote}" for name in columns[1 : columns.index(SPAN[0])]]
        window = f"PARTITION BY {', '.join([*key, *SPAN])}, generation ORDER BY epoch, pane_index"
        counts = "NOT retraction AND timing <> 'early'"
        place = f"COUNT(CASE WHEN {counts} THEN 1 END) OVER ({window}) - 1"
        yield f"CASE WHEN {counts} THEN {place} END AS settled_index"


def standing_rows(ledger: str, columns: Collection[str], properties: Mapping[str, str], quote: str) -> str:
    """Write the SQL for the rows of a map's or a join's ledger that stand, in any dialect.

    It selects what `sql.results.output_rows.OutputRows.current` does. A pair is known by the
    places of both its records, and by its window; by all that it says, where a stream may have taken it back.
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
    """Write the SQL for the rows of a join's ledger that were given and not taken back: the latest, of equal ones."""
    about = ("kind", "generation", "epoch", "retraction", "processing_time", "writer")
    says = ", ".join(name for name in columns if name[1:-1] not in about)
    place = f"ROW_NUMBER() OVER (PARTITION BY {says}, retraction ORDER BY generation DESC, epoch DESC) AS _place"
    stand = f"SUM(CASE WHEN retraction THEN -1 ELSE 1 END) OVER (PARTITION BY {says}) AS _stand"
    rows = f"SELECT *, {place}, {stand} FROM {ledger} WHERE kind = '{PRODUCTION}'"
    return f"SELECT {', '.join(columns)} FROM ({rows}) r WHERE NOT retraction AND _place <= _stand"


def tables(lake: Lake) -> list[str]:
    """List the tables of the lake's namespace, sorted. Raises `LakeError` where there is no lake."""
    if not lake.exists:
        raise LakeError(
            f"there is no lake in {lake.settings.warehouse}: set TAILRACE_WAREHOUSE to the lake that is meant"
        )
    return lake.tables


def first_line(text: str) -> str:
    """Return the first line of an engine's message that says anything, without its code.

    >>> first_line("\\n[PARSE_SYNTAX_ERROR] Syntax error at 'x'. SQLSTATE: 42601 (line 1, pos 7)\\n\\n== SQL ==")
    "Syntax error at 'x'. (line 1, pos 7)"
    """
    line = next((one.strip() for one in text.splitlines() if one.strip()), "the engine says nothing")
    return re.sub(r" ?SQLSTATE: \w+;?", "", re.sub(r"^\[[A-Z0-9_.]+\] ", "", line)).strip()


def mentions(name: str, query: str) -> bool:
    """Tell whether a query has a name anywhere in its text."""
    return re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE) is not None


def extension(name: str) -> Path:
    """Find the file of a DuckDB extension that was installed as a package; nothing is downloaded."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    place = None if found is None or found.origin is None else Path(found.origin).parent
    file = None if place is None else next(place.rglob("*.duckdb_extension"), None)
    if file is None:
        raise LakeError(
            f"DuckDB's extension {name} is not installed: install the extra `duckdb`, or leave --engine out"
        )
    return file
