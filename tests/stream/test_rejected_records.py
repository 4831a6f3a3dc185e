"""A record that a definition cannot take is rejected by it alone, on either engine, and everything adds up (X7)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import RETRACTING, Col, Count, Derive, Fixed, Log, Map, Max, OwnWindows, Pipeline, Sum, hours
from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.status import overview
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.windows.windows import NOTHING, Window
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.checks.ledgers import on, run

ROOT = 3_037_000_500
"""The least number whose square is no bigint."""

SALES = Log(
    name="sales",
    columns={"at": "timestamp", "shop": "string", "n": "bigint", "price": "bigint"},
    event_time="at",
)


@dataclass(frozen=True)
class Opening(OwnWindows):
    """Windows of an hour, of which a shop without a name has none."""

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        if not record["shop"]:
            raise LookupError("no name")
        return Fixed(hours(1)).assign(at)


_COST = Derive({"cost": Col("n") * Col("price")})
COSTS = Pipeline(name="costs", log=SALES, key="shop", where=Fixed(hours(1)), each=_COST, how=RETRACTING,
                 what={"records": Count(), "most": Max("cost"), "n": Sum("n")})  # fmt: skip
SQUARES = Pipeline(name="squares", log=COSTS.panes, where=Fixed(hours(1)),
                   each=Derive({"square": Col("most") * Col("most")}), what={"square": Max("square")})  # fmt: skip
ROWS = Map(name="cost_rows", log=SALES, each=_COST, what=("shop", "cost"))
OPEN = Pipeline(name="opened", log=SALES, key="shop", where=Opening(), what={"records": Count()})
WHY = {
    "costs": "cost: n * price does not fit a bigint",
    "squares": "square: most * most does not fit a bigint",
    "cost_rows": "cost: n * price does not fit a bigint",
    "opened": "Opening: LookupError: no name",
}


def landed(folder: Path) -> None:
    """Four files, an epoch each: records that some definition cannot take are in the second and the third."""
    sales = [
        [("a", 2, 3)],
        [("a", ROOT, ROOT), ("a", 4, 5), ("", 1, 1)],
        [("b", ROOT, 1), ("a", 6, 7)],
        [("end", 0, 0)],
    ]
    for place, rows in enumerate(sales):
        hour = 9 if place == 3 else 0
        lines = (
            json.dumps({"at": f"2026-01-01T0{hour}:00:0{place}Z", "shop": shop, "n": n, "price": price})
            for shop, n, price in rows
        )
        file = folder / f"{place}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_700_000_000 + place, 1_700_000_000 + place))


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_X7_what_a_definition_cannot_take_is_rejected_by_it_alone_and_everything_adds_up(
    plain: SparkSession, settings: Settings, tmp_path: Path, engine: str
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    landed(folder)
    lake = on(Lake(settings), engine)
    run(plain, lake, folder, SQUARES, ROWS, OPEN)
    states = {one.name: one for one in overview(lake)[1]}
    for one, why in WHY.items():
        state = states[one]
        assert (state.rejected, dict(state.reasons)) == (1, {why: 1}), one
    rows = lake.table("costs__ledger").scan("kind = 'pane'").to_arrow().to_pylist()
    assert {row["shop"]: (row["records"], row["most"]) for row in rows} == {"a": (3, 42), "": (1, 1), "b": (1, ROOT)}
    for definition in (COSTS, SQUARES, ROWS, OPEN):
        found = audit(lake, definition)
        assert found.ok, [check for check in found.checks if not check.ok]
    assert replay(lake, ROWS).ok
    assert all(replay(lake, definition).ok for definition in (COSTS, SQUARES, OPEN))
    for definition in (COSTS, ROWS, OPEN):
        done = backfill(lake, definition, instant(SALES.earliest), END_OF_TIME, dry_run=True)
        assert all(one.changed == one.retracted == 0 for one in done)
        assert any(one.untouched for one in done)
