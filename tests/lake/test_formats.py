"""Tables name their format, and no command reads or writes tables of a newer format (rule V7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tailrace
from tailrace.cli.main import app
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.change.generations import make_beside
from tailrace.lake.schema.formats import FORMAT, FormatError
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.settings import Settings
from tailrace.testing.lakes import ScratchLake
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import DEFINITION, HOURLY

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

COMMANDS = {
    "stream": ["--from-log", "--once"],
    "backfill": ["--from", "2026-01-01", "--engine", "duckdb"],
    "apply": ["--engine", "duckdb"],
    "maintain": ["--dry-run"],
    "audit": [],
    "replay": ["--engine", "duckdb"],
    "status": [],
    "plan": [],
    "trace": ["--where", "city = 'Oslo'"],
    "late": [],
}
"""Commands that write tables, and commands that read them, with what each needs besides the definition."""


@pytest.fixture
def definition(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "rides.py"
    path.write_text(DEFINITION)
    return str(path)


def run(command: str, *args: str) -> Result:
    return CliRunner().invoke(app, [command, *args])


def test_V7_each_table_names_its_format_and_the_version_that_made_it(settings: Settings) -> None:
    lake = small_lake.make(settings)
    beside = make_beside(lake, answer_contract(HOURLY), "hourly_rides__g7", {})
    for table in (beside, *map(lake.table, lake.tables)):
        named = (table.properties["tailrace.format"], table.properties["tailrace.version"])
        assert named == (str(FORMAT), tailrace.__version__)


@pytest.mark.parametrize("command", COMMANDS)
def test_V7_no_command_opens_tables_of_a_newer_format(settings: Settings, definition: str, command: str) -> None:
    lake = small_lake.make(settings)
    before = lake.table("hourly_rides__ledger").metadata.current_snapshot_id
    newer = {"tailrace.format": str(FORMAT + 1), "tailrace.version": "7.5.0"}
    with open_transaction(lake.table("hourly_rides__ledger")) as transaction:
        transaction.set_properties(newer)
    result = run(command, definition, *COMMANDS[command])
    assert result.exit_code not in (0, 2), result.output
    assert f"table hourly_rides__ledger has format {FORMAT + 1}, which Tailrace 7.5.0 gave it" in result.output
    assert f"Tailrace {tailrace.__version__} knows formats up to {FORMAT}: install Tailrace 7.5.0" in result.output
    metadata = lake.catalog.load_table(("main", "hourly_rides__ledger")).metadata
    assert metadata.current_snapshot_id == before


def test_V7_a_table_without_a_format_is_read_and_an_unknown_one_is_not(settings: Settings) -> None:
    lake = small_lake.make(settings)
    with open_transaction(lake.table("rides")) as transaction:
        transaction.remove_properties("tailrace.format", "tailrace.version")
    assert len(lake.table("rides").scan().to_arrow()) == 2
    with open_transaction(lake.table("rides")) as transaction:
        transaction.set_properties({"tailrace.format": "next"})
    with pytest.raises(FormatError, match=r"table rides has format next, and .*: install a later version"):
        lake.find("rides")


def test_V7_a_running_stream_stops_before_its_next_commit_once_a_table_has_a_newer_format(tmp_path: Path) -> None:
    lake = ScratchLake(tmp_path / "lake")
    record = {"at": "2026-01-01T09:10:00Z", "city": "Oslo", "price": 3}
    lake.stream(HOURLY, [record])
    before = lake.tables.head("hourly_rides__ledger")
    with open_transaction(lake.tables.table("hourly_rides__ledger")) as transaction:
        transaction.set_properties({"tailrace.format": str(FORMAT + 1)})
    with pytest.raises(FormatError, match="table hourly_rides__ledger has format 2"):
        lake.stream(HOURLY, [record])
    ledger = lake.tables.catalog.load_table(("main", "hourly_rides__ledger"))
    assert ledger.metadata.current_snapshot_id == before.snapshot
