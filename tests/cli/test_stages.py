"""The commands on a definition of several stages: the last one is meant, and all of them are told of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.plan.loader import load

DEFINITION = """
from tailrace import *

def shouted(sale):
    return {"loud": sale["shop"].upper()}

columns = {"shop": "string", "price": "bigint", "at": "timestamp"}
log = Log(name="sales", columns=columns, event_time="at", disorder=seconds(30))
by_shop = Pipeline(
    name="sales_by_shop",
    log=log,
    each=Each(shouted, {"loud": "string"}),
    key="loud",
    what={"sales": Count(), "total": Sum("price")},
    where=Sessions(minutes(1)),
    when=AfterWatermark(early=AfterCount(1)),
    how=RETRACTING,
)
shops = Pipeline(
    name="shops_by_sales",
    log=by_shop.panes,
    keep=Match("sales", ">=", 1),
    key="sales",
    what={"shops": Count(), "best": Max("total")},
    where=Global(),
    when=Repeat(AfterCount(1)),
)
"""
ROWS = [
    {"shop": "a", "price": 5, "at": "2024-01-01T00:00:10Z"},
    {"shop": "b", "price": 7, "at": "2024-01-01T00:00:20Z"},
    {"shop": None, "price": 9, "at": "2024-01-01T00:00:25Z"},
    {"shop": "a", "price": 1, "at": "2024-01-01T00:00:30Z"},
]


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path / "lake"))
    file = tmp_path / "shops.py"
    file.write_text(DEFINITION)
    return str(file)


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return result


def test_the_last_stage_of_a_file_is_the_definition(definition: str) -> None:
    assert load(definition).name == "shops_by_sales"
    assert load(f"{definition}:sales_by_shop").name == "sales_by_shop"
    assert load(f"{definition}:by_shop").name == "sales_by_shop"


def test_explain_tells_each_stage(definition: str) -> None:
    told = json.loads(run("explain", definition, "--json").stdout)
    assert [told["pipeline"], *(one["pipeline"] for one in told["earlier"])] == ["shops_by_sales", "sales_by_shop"]
    stages = {stage["stage"]: stage for stage in told["stages"]}
    assert stages["take"]["execution"] == "duckdb"
    assert stages["prepare"]["says"] == ["kept are records with Match('sales', operator='>=', value=1)"]
    assert stages["aggregate"]["execution"] == "duckdb"
    assert "array<struct<value:bigint,n:bigint>>, the values of both, each with how many there are" in str(stages)
    assert stages["watermark"]["says"][0].startswith(
        "the one of sales_by_shop, but no further than the oldest answer of a"
    )
    first = {stage["stage"]: stage for stage in told["earlier"][0]["stages"]}
    assert (first["prepare"]["execution"], first["aggregate"]["execution"]) == ("duckdb", "duckdb")
    assert "compiled to SQL" in str(first["prepare"])
    assert first["ledger"]["kinds"] == ["partial", "pane", "late", "rejected"]
    assert ("answers" in first, "answers" in stages) == (False, True)
    text = run("explain", definition).stdout
    assert text.index("sales_by_shop  log sales") < text.index("shops_by_sales  after sales_by_shop")


def test_tables_are_those_of_every_stage_and_of_the_log(definition: str) -> None:
    told = json.loads(run("tables", definition, "--json").stdout)
    names = [table["table"] for table in told["tables"]]
    stages = ("sales_by_shop", "shops_by_sales")
    own = [f"{stage}{suffix}" for stage in stages for suffix in ("__ledger", "__runs", "__commits")]
    log = ["sales", "sales__rejected", "sales__commits", "sales__rejected__commits"]
    assert sorted(names) == sorted([*log, *own, "shops_by_sales"])


def test_simulate_shows_every_stage_and_what_a_step_rejects(definition: str, tmp_path: Path) -> None:
    sample = tmp_path / "sales.jsonl"
    sample.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    told = json.loads(run("simulate", definition, str(sample), "--json").stdout)
    assert told["pipeline"] == "shops_by_sales"
    said = [(pane["key"][0], pane["retraction"], pane["values"]["shops"]) for pane in told["panes"]]
    assert said[:4] == [(1, False, 1), (1, False, 2), (1, False, 1), (2, False, 1)]
    (earlier,) = told["earlier"]
    assert earlier["pipeline"] == "sales_by_shop"
    assert {pane["key"][0] for pane in earlier["panes"]} == {"A", "B"}
    assert [one["reason"] for one in told["rejected"]] == ["AttributeError: 'NoneType' object has no attribute 'upper'"]
    page = tmp_path / "shops.html"
    shown = run("simulate", definition, str(sample), "--html", str(page)).stdout
    assert "rejected by a step" in shown
    assert page.stat().st_size > 1000


def test_a_signal_is_a_row_of_the_logs_table(definition: str) -> None:
    told = json.loads(run("signal", definition, "close", "--json").stdout)
    assert told == {"signal": "close", "table": "sales__signals", "waiting": []}
    wrong = CliRunner().invoke(app, ["signal", definition, "Close!"])
    assert wrong.exit_code == 2
    assert "expected a name of up to 63 lower-case letters" in wrong.output
