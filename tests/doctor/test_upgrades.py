"""After an upgrade the doctor says what has to be migrated, or that nothing has to be (rule V7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tailrace
from tailrace import Sum
from tailrace.cli.commands.look.doctor import examine
from tailrace.doctor import machine_checks
from tailrace.doctor.findings import Finding
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import KNOWN, meaning_properties
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import HOURLY

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

LEDGER = "hourly_rides__ledger"


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(machine_checks, "missing_jars", lambda folder, groups: [])
    return small_lake.make(settings)


def found(lake: Lake, *definitions: Definition) -> dict[str, Finding]:
    return {one.name: one for one in examine(lake.settings, definitions=definitions)}


def set_properties(lake: Lake, table: str, **properties: str) -> None:
    with open_transaction(lake.table(table)) as transaction:
        transaction.set_properties({name.replace("__", "."): value for name, value in properties.items()})


def test_V7_the_doctor_says_that_nothing_has_to_be_migrated(lake: Lake) -> None:
    told = found(lake, HOURLY)
    assert {told[name].state for name in ("formats", "times", "definitions")} == {"ok"}
    assert told["formats"].found == f"format 1 of all 5 tables: 5 made by {tailrace.__version__}"
    assert told["definitions"].found == "nothing has to be migrated: tables of hourly_rides go on as they are"
    assert found(lake)["definitions"].state == "not looked at"


def test_V7_the_doctor_names_tables_of_a_newer_format_and_looks_no_further(lake: Lake) -> None:
    set_properties(lake, LEDGER, tailrace__format="2", tailrace__version="7.5.0")
    told = found(lake, HOURLY)
    assert told["formats"].state == "wrong"
    assert told["formats"].found.startswith(f"table {LEDGER} has format 2, which Tailrace 7.5.0 gave it")
    assert told["formats"].mend == "install Tailrace 7.5.0 or later"
    assert {told[name].state for name in ("times", "checkpoints", "definitions")} == {"not looked at"}


def test_V7_the_doctor_names_tables_of_another_meaning_and_those_that_lack_columns(lake: Lake) -> None:
    changed = replace(HOURLY, what={**HOURLY.what, "earned": Sum("price")})
    told = found(lake, changed)["definitions"]
    assert (told.state, told.found.partition(":")[0]) == ("wrong", "hourly_rides")
    assert "tailrace plan" in told.mend
    with lake.table("rides").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("price")
    told = found(lake, HOURLY)["definitions"]
    assert (told.state, told.found) == (
        "wrong", "tables without what this version writes: rides: add column price (bigint)"
    )  # fmt: skip
    assert "tailrace tables apply" in told.mend


def test_V7_the_doctor_names_fingerprints_that_changed_while_the_meaning_stayed(lake: Lake) -> None:
    head = lake.head(LEDGER)
    lake.mark(LEDGER, {**head.properties, "fingerprint": "of before"}, head.snapshot)
    set_properties(lake, LEDGER, **meaning_properties(HOURLY), **{KNOWN: "of before"})
    told = found(lake, HOURLY)["definitions"]
    assert told.state == "ok"
    assert "wrote the fingerprint of hourly_rides, which has the same meaning" in told.found


def test_V7_the_doctor_says_which_checkpoints_another_spark_wrote(lake: Lake) -> None:
    assert found(lake)["checkpoints"].state == "not looked at"
    folder = Path(lake.settings.checkpoint("main", "rides", "4"))
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "9").write_text("v7\n{}")
        (folder / kind / "10").write_text("v1\n{}")
    assert found(lake)["checkpoints"].found == "1 of version v1, which this Spark goes on with"
    (folder / "commits" / "10").write_text("v2\n{}")
    told = found(lake)["checkpoints"]
    assert told.state == "ok"
    assert told.found.startswith("another Spark wrote checkpoints (that of log rides has v2)")
