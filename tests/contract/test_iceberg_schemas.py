"""The files in `iceberg_schemas/` are the contracts that the code has: no table changes its shape unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.cli.definitions import load_any
from tailrace.lake.contract_files import agreed, contract_text
from tailrace.lake.contracts import Contract, archives, contracts
from tailrace.lake.layouts import term
from tailrace.lake.sources import sources_text

FOLDER = Path("iceberg_schemas")
DEFINITIONS = sorted(Path("pipelines").glob("*.py"))
MADE = [load_any(str(path)) for path in DEFINITIONS]
CONTRACTS = {contract.table: contract for one in MADE for contract in (*contracts(one), *archives(one))}


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=list(CONTRACTS))
def test_the_file_of_a_table_is_its_contract(contract: Contract) -> None:
    path = FOLDER / f"{contract.table}.json"
    mend = "run: for f in pipelines/*.py; do tailrace tables write $f; done"
    assert path.is_file(), f"{path} is missing; {mend}"
    assert path.read_text() == contract_text(agreed(contract, FOLDER)), f"{path} is not what the code makes; {mend}"


def test_the_sources_of_the_dbt_project_are_the_contracts() -> None:
    stage = load_any("pipelines/flights.py")
    made = [agreed(one, FOLDER) for one in contracts(stage)]
    mend = "run: tailrace tables sources pipelines/flights.py"
    assert Path("dbt/models/sources.yml").read_text() == sources_text([stage], made), mend


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
