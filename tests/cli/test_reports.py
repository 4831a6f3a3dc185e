"""`status`, `panes` and `tables` read a lake without a JVM."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType
from typer.testing import CliRunner, Result

from tailrace.cli.main import app
from tailrace.lake.catalog.backends import Sqlite
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.status import status
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.settings import Settings
from tests.support.lakes import small_lake

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("COLUMNS", "200")
    return Lake(settings)


@pytest.fixture
def made(lake: Lake) -> Lake:
    return small_lake.make(lake.settings)


@pytest.fixture
def definition(tmp_path: Path) -> str:
    path = tmp_path / "rides.py"
    path.write_text(small_lake.DEFINITION)
    return str(path)


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


def data(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_status_says_how_far_a_pipeline_is(made: Lake, definition: str) -> None:
    shown = lines(run("status", definition))
    assert [line for line in shown if "committed" not in line and " stream" not in line] == [
        f"hourly_rides  log rides  lake {made.settings.warehouse}",
        "watermark     2026-01-01T12:30Z  1 h 30 min behind processing time, 1 h behind its latest event",
        "log           2 records, 0 rejected  latest event 2026-01-01T13:30Z",
        "open windows  3  ending 2026-01-01T11:00Z to 2026-01-01T12:00Z",
        "answers       3  1 epoch behind the ledger",
        "panes         5  retractions included",
        "late records  1",
        f"fingerprint   {small_lake.HOURLY.fingerprint}",
        "",
        "runs",
        "     [beginning, end of time)",
    ]
    assert shown[2].startswith("last epoch    log 2, ledger 2, answers 1  committed 20")
    assert [line.split()[::2] for line in shown if " stream" in line and "lease" not in line] == [["1", "stream"]]
    assert shown[-2].split()[-1] == "started"


@pytest.mark.parametrize("args", [("status",), ("panes", "--key", "Oslo"), ("late",)])
def test_in_80_columns_instants_windows_and_names_stay_on_one_line(
    made: Lake, definition: str, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    command, *more = args
    wide = run(command, definition, *more).stdout
    monkeypatch.setenv("COLUMNS", "80")
    narrow = run(command, definition, *more).stdout
    assert max(map(len, narrow.splitlines())) <= 80 or command == "late", "a command to copy is whole"
    for found in (_INSTANT, _RUN):
        assert found.findall(narrow) == found.findall(wide)


_INSTANT = re.compile(r"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?")

_RUN = re.compile(r"\b[0-9a-f]{12}\b")


def test_status_is_the_same_in_json(made: Lake, definition: str) -> None:
    found = data(run("status", definition, "--json"))
    names = ("started", "epoch", "answers_epoch", "answers", "panes", "late", "token")
    assert {name: found[name] for name in names} == {
        "started": True, "epoch": 2, "answers_epoch": 1, "answers": 3, "panes": 5, "late": 1, "token": 4
    }  # fmt: skip
    assert found["watermark"] == "2026-01-01T12:30:00Z"
    assert found["lag_seconds"] == {"behind_processing_time": 5400.0, "behind_latest_event": 3600.0}
    assert found["open_windows"] == {
        "count": 3, "oldest_end": "2026-01-01T11:00:00Z", "newest_end": "2026-01-01T12:00:00Z"
    }  # fmt: skip
    assert found["logs"][0]["latest_event"] == "2026-01-01T13:30:00Z"
    assert [(run["kind"], run["status"], run["range"]) for run in found["runs"]] == [
        ("stream", "started", ["beginning", "end of time"])
    ]


def test_an_open_window_is_one_that_a_record_can_still_reach(made: Lake) -> None:
    # Oslo 10 and 11, Rome 11 once; Oslo 9 has closed (its end plus two hours is behind the watermark), Rome 12 is gone.
    found = status(made, small_lake.HOURLY).own
    assert found is not None
    assert found.windows is not None
    assert found.windows.count == 3


def test_status_without_a_definition_lists_the_lake(made: Lake) -> None:
    shown = lines(run("status"))
    assert shown[-2:] == [
        "pipeline      watermark          last epoch  answers at  answers  panes  late  gen",
        "hourly_rides  2026-01-01T12:30Z           2           1        3      5     1    1",
    ]
    found = data(run("status", "--json"))
    assert [log["log"] for log in found["logs"]] == ["rides"]
    assert [one["pipeline"] for one in found["pipelines"]] == ["hourly_rides"]


def test_status_before_the_first_stream(lake: Lake, definition: str) -> None:
    where = lake.settings.warehouse
    assert lines(run("status", definition))[1] == (
        f"no stream has run yet in {where}: tailrace stream {definition} --from DIR"
    )
    assert data(run("status", definition, "--json")) == {
        "pipeline": "hourly_rides", "started": False, "logs": [], "behind": [],
    }  # fmt: skip
    assert data(run("status", "--json")) == {"logs": [], "pipelines": []}
    assert not lake.exists


def test_status_warns_of_another_definition(made: Lake, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(
        "from dataclasses import replace\nfrom tests.support.lakes.small_lake import HOURLY\n"
        "from tailrace import Fixed, days\n"
        "one = replace(HOURLY, where=Fixed(days(1)))\ndel HOURLY\n"
    )
    assert "a definition with another meaning" in run("status", str(other)).stdout
    assert data(run("status", str(other), "--json"))["same_definition"] is False


def test_panes_are_the_history_of_a_key_and_window(made: Lake, definition: str) -> None:
    assert lines(run("panes", definition, "--key", "Oslo", "--window", "2026-01-01T09:20")) == [
        "hourly_rides  city Oslo  [2026-01-01T09:00Z, 10:00Z)",
        "times are of 2026-01-01, UTC, all of generation 1",
        "epoch  pane  timing      rides  mean_price  fired at  watermark",
        "    0     0  on time  +      2         5.5  11:00     10:30",
        "    1     1  late     −      2         5.5  11:00     10:30",
        "    1     1  late     +      3     1,234.5  11:00     10:30",
        "",
        "too late",
        "event time  epoch  behind      reason   in the log",
        "09:15           2  2 h 30 min  expired  two.json, 7",
        "",
        "answer  rides 3, mean_price 1,234.5  (late, written by the stream)",
        "window  closed: the watermark passed 2026-01-01T12:00Z",
        "panes   3 panes, 1 late record",
    ]


def test_panes_in_json_have_every_version(made: Lake, definition: str) -> None:
    found = data(run("panes", definition, "--key", "city=Oslo", "--window", "2026-01-01T10:00+01:00", "--json"))
    assert found["key"] == {"city": "Oslo"}
    assert found["watermark"] == "2026-01-01T12:30:00Z"
    assert [(p["epoch"], p["index"], p["retraction"], p["values"]["rides"]) for p in found["panes"]] == [
        (0, 0, False, 2), (1, 1, True, 2), (1, 1, False, 3)
    ]  # fmt: skip
    assert found["late"][0]["source"] == {"epoch": 2, "partition": "file:/landing/two.json", "offset": 7}


def test_panes_of_all_windows_name_each(made: Lake, definition: str) -> None:
    shown = lines(run("panes", definition, "--key", "Oslo"))
    assert shown[1] == "times are of 2026-01-01, UTC, a version is generation.epoch.pane"
    assert " ".join(shown[2].split()) == "window version timing rides mean_price"
    assert len([line for line in shown if line.startswith("[09:00, 10:00)  1.")]) == 3
    assert shown[-1].startswith("[09:00, 10:00)  09:15")


def test_no_pane_is_said_with_where_the_ledger_is(made: Lake, definition: str) -> None:
    text = " ".join(lines(run("panes", definition, "--key", "Bern", "--window", "2026-01-01")))
    assert "no pane yet at 2026-01-01T00:00Z" in text
    assert "the ledger is at epoch 2, its watermark at 2026-01-01T12:30Z" in text


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        ((), 2, "the key of hourly_rides is (city): expected --key city=VALUE"),
        (("--key", "Oslo", "--key", "Rome"), 2, "the key of hourly_rides is (city): expected --key city=VALUE"),
        (("--key", "Oslo", "--window", "noon"), 2, "--window 'noon': expected a date or an instant"),
        (("--key", "Oslo"), 3, "there is no table main.hourly_rides__ledger"),
    ],
)
def test_panes_refuses_what_makes_no_sense(
    lake: Lake, definition: str, args: tuple[str, ...], status: int, message: str
) -> None:
    result = run("panes", definition, *args)
    assert result.exit_code == status
    assert result.stderr.startswith(f"error: {message}")
    assert result.stdout == ""


def test_a_command_outside_of_the_project_says_where_it_looked(
    tmp_path: Path, definition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop" / "pipelines").mkdir(parents=True)
    (tmp_path / "shop" / "tailrace.toml").write_text('warehouse = "data"\n')
    monkeypatch.delenv("TAILRACE_WAREHOUSE", raising=False)
    for folder, place in (("shop/pipelines", "shop/data: "), (".", "build/lake (there is no tailrace.toml in ")):
        monkeypatch.chdir(tmp_path / folder)
        for words in (("status",), ("late",), ("watermark",)):
            assert f"no stream has run yet in {tmp_path / place}" in " ".join(lines(run(*words, definition)))
        assert f"in {tmp_path / place}" in run("panes", definition, "--key", "Oslo").stderr


def test_tables_are_as_agreed(made: Lake, definition: str) -> None:
    made_first = ("rides", "rides__rejected", "hourly_rides__ledger", "hourly_rides", "hourly_rides__runs")
    found = data(run("tables", definition, "--json"))
    assert [(one["table"], one["state"]) for one in found["tables"]] == [
        *((name, "as agreed") for name in made_first),
        *((f"{name}__commits", "not made yet") for name in ("rides", "rides__rejected", "hourly_rides")),
    ]
    assert lines(run("tables", definition))[-1] == "5 as agreed, 3 not made yet"


def test_tables_before_the_first_stream(lake: Lake, definition: str) -> None:
    assert lines(run("tables", definition))[-1] == "8 not made yet"
    assert not lake.exists


def test_a_changed_table_is_a_finding(made: Lake, definition: str) -> None:
    table = made.table(answer_contract(small_lake.HOURLY).table)
    with table.update_schema() as update:
        update.delete_column("mean_price")
        update.add_column("note", StringType())
    with table.transaction() as transaction:
        transaction.set_properties({"write.merge.mode": "copy-on-write"})
    result = run("tables", definition, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["tables"][3]["differences"] == [
        "add column mean_price (double)",
        "drop column note (string)",
        "set property write.merge.mode to merge-on-read, it was copy-on-write",
    ]
    assert "  ! to be done: add column mean_price (double)" in run("tables", definition).stdout


def test_tables_are_planned_and_brought_to_their_contracts(
    made: Lake, definition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "schemas"
    monkeypatch.setenv("TAILRACE_CONTRACTS", str(folder))
    assert lines(run("tables", "plan", definition))[0] == "nothing to do: the live tables are as agreed"
    run("tables", "write", definition)
    path = folder / "rides.json"
    said = json.loads(path.read_text())
    said["columns"][2]["doc"] = "in crowns"
    path.write_text(json.dumps(said | {"owner": "rides team", "partition_by": ["day(at)", "city"]}))
    run("tables", "write", definition)
    assert json.loads(path.read_text())["owner"] == "rides team", "what people agreed on stays"
    made.table("rides").update_schema().add_column("note", StringType()).commit()
    first = run("tables", "plan", definition, "--json")
    assert first.exit_code == 1
    changes = json.loads(first.stdout)["tables"][0]["changes"]
    assert [(one["change"], one["effect"]) for one in changes] == [
        ("document price: 'in crowns', it said 'as declared by log rides'", "safe"),
        ("drop column note (string)", "destructive"),
        ("partition by city", "safe"),
        ("set property owner to rides team, it was unnamed", "safe"),
    ]
    shown = run("tables", "apply", definition)
    assert shown.exit_code == 1
    assert "  ! drop column note (string)  (needs --destructive)" in shown.stdout
    assert "hurts: its values are in snapshots from before alone" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "3 done, 1 left"
    last = run("tables", "apply", definition, "--destructive")
    assert last.exit_code == 0
    assert lines(last)[-1] == "1 done"
    assert lines(run("tables", "apply", definition)) == ["nothing to do"]


def test_a_contract_that_makes_no_sense_names_every_fault(
    made: Lake, definition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_CONTRACTS", str(tmp_path))
    said = {"owner": "", "format_version": 3, "partition_by": ["day(price)", "who"], "sort_by": ["at down"], "x": 1}
    (tmp_path / "rides.json").write_text(json.dumps(said))
    result = run("tables", definition)
    assert (result.exit_code, result.stdout) == (2, "")
    assert [line.split(":")[0].strip() for line in result.stderr.splitlines()[1:]] == [
        "1. x = 1",
        "2. owner = ''",
        "3. format_version = 3",
        "4. partition_by[0] = 'day(price)'",
        "5. partition_by[1] = 'who'",
        "6. sort_by[0] = 'at down'",
    ]


def test_contracts_are_written_as_files(lake: Lake, definition: str, tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    first = lines(run("tables", "write", definition, "--to", str(folder)))
    again = data(run("tables", "write", definition, "--to", str(folder), "--json"))
    assert first[0] == f"{folder}/rides.json  written"
    assert {Path(one["file"]) for one in again["written"]} == set(folder.iterdir())
    assert not any(one["changed"] for one in again["written"])
    assert json.loads((folder / "rides.json").read_text())["columns"][1] == {
        "name": "city", "type": "string", "required": False, "doc": "as declared by log rides"
    }  # fmt: skip


def test_a_catalog_that_is_none_is_said_in_one_message(lake: Lake, definition: str) -> None:
    Path(lake.settings.warehouse).mkdir(parents=True)
    Sqlite(lake.settings).file.write_text("not SQLite")
    result = run("status", definition)
    assert result.exit_code == 3
    assert "cannot be opened" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("args", "told"),
    [(("panes", "--key", "Oslo"), "1,234.5"), (("status",), "open windows  3"), (("late",), "1 late record")],
)
def test_looking_loads_neither_spark_nor_what_only_commits_need(
    made: Lake, definition: str, args: tuple[str, ...], told: str
) -> None:
    heavy = {"pyspark", "pandas", "py4j", "sqlalchemy", "duckdb"}
    command, *more = args
    code = (
        "import sys; sys.path.insert(0, 'tests'); from tailrace.cli.main import app\n"
        f"app([{command!r}, {definition!r}, *{more}], standalone_mode=False)\n"
        f"assert not (found := {heavy} & set(sys.modules)), found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout


def test_what_is_left_out_or_loaded_later_is_there_when_it_is_asked_for() -> None:
    code = (
        "import sys; from tailrace.cli.runtime import process; process.claim_process(); process.skip_unused_imports()\n"
        "import strictyaml, pyiceberg.io.pyarrow; from pyiceberg.expressions import parser\n"
        "assert not (found := {'pyparsing', 'numpy', 'pandas', 'strictyaml.parser'} & set(sys.modules)), found\n"
        "assert parser.parse('a > 1').literal.value == 1 and strictyaml.load('a: b').data == {'a': 'b'}\n"
        "from pyiceberg.expressions.parser import parse; import numpy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
