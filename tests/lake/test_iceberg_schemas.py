"""The files in `iceberg_schemas/` are the contracts that the code has: no table changes its shape unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.lake.change.registry import registry_contracts
from tailrace.lake.schema.contract_files import apply_contract_file, contract_text
from tailrace.lake.schema.contracts import Contract, log_contract
from tailrace.lake.schema.dbt_sources import sources_text
from tailrace.lake.schema.layouts import term
from tailrace.lake.schema.owned_tables import all_contracts
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log
from tailrace.plan.loader import load_any

FOLDER = Path("iceberg_schemas")
LOGS = ("ad_views", "auctions", "queries", "searches")
"""Files that hold a log alone, for others to read."""

SEVERAL = {"shop": (":revenue", ":top_products", ":visits")}
"""The definitions of files that hold several."""

FILES = sorted(path for path in Path("pipelines").glob("*.py") if path.stem not in LOGS)
MADE = [load_any(f"{path}{name}") for path in FILES for name in SEVERAL.get(path.stem, ("",))]
ADS = [load_any(f"pipelines/{name}.py") for name in ("ads", "ad_popularity", "ad_abuse")]
CONTRACTS = {contract.table: contract for one in MADE for contract in (*all_contracts(one), *registry_contracts(one))}


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=list(CONTRACTS))
def test_the_file_of_a_table_is_its_contract(contract: Contract) -> None:
    path = FOLDER / f"{contract.table}.json"
    mend = "run tailrace tables write pipelines/FILE.py, with :NAME if the file holds several definitions"
    assert path.is_file(), f"{path} is missing; {mend}"
    assert path.read_text() == contract_text(apply_contract_file(contract, FOLDER)), (
        f"{path} is not what the code makes; {mend}"
    )


@pytest.mark.parametrize(
    ("stages", "file"),
    [([load_any("pipelines/flights.py")], "dbt/models/sources.yml"), (ADS, "dbt/models/ads/sources.yml")],
    ids=["flights", "ads"],
)
def test_the_sources_of_the_dbt_project_are_the_contracts(stages: list[Definition], file: str) -> None:
    made = {one.table: apply_contract_file(one, FOLDER) for stage in stages for one in all_contracts(stage)}
    mend = f"run: tailrace tables sources DEFINITION... --to {file}"
    assert Path(file).read_text() == sources_text(stages, list(made.values())), mend


def test_there_is_no_file_without_a_table() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CONTRACTS)


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=list(CONTRACTS))
def test_a_contract_says_what_every_column_holds(contract: Contract) -> None:
    found = json.loads((FOLDER / f"{contract.table}.json").read_text())
    assert found["doc"]
    assert found["owner"]
    assert found["retention"]
    assert all(column["doc"] for column in found["columns"])
    columns = {column["name"] for column in found["columns"]}
    assert {term(text).column for text in (*found["partition_by"], *found["sort_by"])} <= columns
    assert set(found["key"]) <= columns


@pytest.mark.parametrize(("type", "pages"), [("bigint", "v2"), ("boolean", "v1")])
def test_the_pages_of_a_log_are_such_as_spark_can_read(type: str, pages: str) -> None:
    log = Log(name="seen", columns={"at": "timestamp", "what": type}, event_time="at")
    assert log_contract(log).properties["write.parquet.page-version"] == pages
