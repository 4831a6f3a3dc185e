"""`tailrace doctor` on this machine alone: what it says is so, and it leaves nothing behind."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner, Result

from tailrace.cli.main import app
from tailrace.doctor import lake_checks, machine_checks
from tailrace.doctor.findings import Finding, UnseenError, WrongError, run_check
from tailrace.lake.catalog.backends import Sqlite
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """One that has its catalog and namespace; the jars count as there."""
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(machine_checks, "missing_jars", lambda folder, groups: [])
    lake = Lake(settings)
    with closing(lake.catalog):
        return lake


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *words])


def found(*words: str) -> dict[str, Any]:
    """Each check's finding, by its name."""
    result = run("--json", *words)
    told = json.loads(result.stdout)
    assert result.exit_code == (1 if told["wrong"] else 0), result.output
    return {one["name"]: one for one in told["checks"]}


def test_a_lake_with_nothing_wrong_is_said_to_have_nothing_wrong(lake: Lake) -> None:
    before = sorted(Path(lake.settings.warehouse).rglob("*"))
    told = found()
    assert {one["state"] for one in told.values()} == {"ok", "not looked at"}
    assert told["catalog"]["found"] == f"{lake.settings.warehouse}/catalog.db: namespace main, 0 tables"
    assert told["commits"] == {
        "name": "commits", "state": "ok", "found": "a commit that was overtaken by another is refused", "mend": ""
    }  # fmt: skip
    assert told["kafka"]["state"] == "not looked at"
    assert not {"credentials", "clock", "glue", "application"} & set(told), "nothing of this lake is at AWS"
    assert sorted(Path(lake.settings.warehouse).rglob("*")) == before, "it leaves nothing behind"
    assert lake.tables == []


def test_people_read_what_is_wrong_last_with_how_to_mend_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        deaf = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("TAILRACE_KAFKA_BOOTSTRAP", deaf)
        result = run()
    assert result.exit_code == 1
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].split() == ["check", "state", "found"]
    assert lines[-4].split()[:2] == ["kafka", "wrong"]
    assert f"no connection to {deaf}" in lines[-4]
    assert lines[-3].strip() == (
        "→ start the broker, let its security group or firewall through, or correct TAILRACE_KAFKA_BOOTSTRAP"
    )
    assert ", 1 wrong, in " in lines[-1]


def test_a_server_that_listens_and_answers_nothing_is_no_broker(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        told = settings.model_copy(update={"kafka_bootstrap": f"127.0.0.1:{server.getsockname()[1]}"})
        with pytest.raises(WrongError, match="accept a connection, but not a client with kafka_security plaintext"):
            machine_checks.check_brokers(told)


def test_before_the_first_stream_there_is_no_catalog_and_none_is_made(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    told = found()
    assert told["warehouse"]["state"] == "ok"
    assert "is not there yet, and can be made" in told["warehouse"]["found"]
    assert (told["catalog"]["state"], told["catalog"]["mend"]) == ("not looked at", "the first stream makes it")
    assert told["commits"]["state"] == "not looked at"
    assert not Path(settings.warehouse).exists()


def test_a_folder_that_cannot_be_written_is_wrong(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    under = settings.model_copy(update={"warehouse": tmp_path / "file" / "lake"})
    told = run_check("warehouse", lambda: lake_checks.check_folder(under))
    assert told == Finding(
        "warehouse", "wrong", f"{tmp_path}/file is a file, where a folder was expected",
        "set TAILRACE_WAREHOUSE to a folder that may be written",
    )  # fmt: skip
    if not Path("/proc").is_dir():
        pytest.skip("there is no folder here that nobody may write to")
    told = run_check(
        "warehouse", lambda: lake_checks.check_folder(settings.model_copy(update={"warehouse": Path("/proc/lake")}))
    )
    assert told.state == "wrong"
    assert told.found.startswith("/proc cannot be written (")
    assert told.mend.startswith("let who runs this write there (chown, chmod), or set TAILRACE_WAREHOUSE")


def test_a_catalog_is_not_looked_at_where_the_warehouse_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").write_text("")
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path / "lake"))
    told = found()
    assert told["commits"]["found"] == "something has to be right first: warehouse"


def test_a_catalog_that_may_only_be_read_is_wrong(lake: Lake) -> None:
    engine = create_engine(f"sqlite:///{Sqlite(lake.settings).file}")
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TRIGGER only_read BEFORE UPDATE ON iceberg_tables "
                "BEGIN SELECT RAISE(ABORT, 'permission denied for table iceberg_tables'); END"
            )
        )
    engine.dispose()
    told = found()
    assert told["catalog"]["state"] == "ok"
    assert told["commits"]["state"] == "wrong"
    assert "permission denied for table iceberg_tables" in told["commits"]["found"]
    assert told["commits"]["mend"] == "let who runs this make, change and drop tables there"


def test_a_catalog_that_is_none_is_wrong(lake: Lake) -> None:
    Sqlite(lake.settings).file.write_text("not SQLite, whatever its name says")
    told = found()["catalog"]
    assert told["state"] == "wrong"
    assert "cannot be opened" in told["found"]
    assert "TAILRACE_CATALOG_URI" in told["mend"]


def test_jars_that_are_missing_are_wrong_with_the_command_that_fetches_them(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("TAILRACE_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("TAILRACE_CATALOG_URI", "postgresql://me@127.0.0.1:1/lake")
    told = found()
    assert told["jars"]["state"] == "wrong"
    assert "iceberg-spark-runtime" in told["jars"]["found"]
    assert "`tailrace setup --group lake --group postgres`" in told["jars"]["mend"]
    assert told["catalog"]["state"] == "wrong"
    assert "postgresql://me@127.0.0.1:1/lake cannot be opened" in told["catalog"]["found"]


def test_a_java_that_does_not_fit_is_wrong(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_JAVA_HOME", str(tmp_path))
    told = found()["java"]
    assert told["state"] == "wrong"
    assert "no working bin/java there, wanted Java 17 to 21; correct TAILRACE_JAVA_HOME" in told["found"]


def test_a_package_of_another_version_is_wrong(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["pyiceberg[pyarrow,sql-sqlite]==0.11.0", "pyspark[sql]==4.1.4; extra == 'spark'", "typer>=0.16"]
    monkeypatch.setattr(machine_checks, "requires", lambda name: asked)
    told = found()
    assert told["pyiceberg"]["state"] == "wrong"
    assert told["pyiceberg"]["found"].endswith(", the project needs ==0.11.0")
    assert "pyiceberg==0.11.0" in told["pyiceberg"]["mend"]


def test_a_check_that_fails_in_a_way_of_its_own_takes_no_other_with_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(settings: Settings) -> str:
        raise KeyError("no such thing")

    monkeypatch.setattr(lake_checks, "check_folder", broken)
    result = run()
    assert result.exit_code == 1
    assert "KeyError: 'no such thing'" in result.stdout
    assert "Traceback" not in result.output
    assert "catalog" in result.stdout


def test_what_a_service_does_not_allow_is_mended_by_what_it_names() -> None:
    def refused() -> str:
        raise RuntimeError(
            "User: arn:aws:iam::1:user/me is not authorized to perform: glue:CreateTable on resource: arn:x"
        )

    assert run_check("one", refused).mend == "allow glue:CreateTable on arn:x to who runs this"


def test_a_check_says_what_it_found_or_why_it_did_not_look() -> None:
    def unseen() -> str:
        raise UnseenError("nothing there", "make it")

    def wrong() -> str:
        raise WrongError("broken", "mend it")

    assert run_check("one", lambda: "fine") == Finding("one", "ok", "fine")
    assert run_check("one", unseen) == Finding("one", "not looked at", "nothing there", "make it")
    assert run_check("one", wrong) == Finding("one", "wrong", "broken", "mend it")


def test_a_doctor_starts_no_jvm_and_loads_no_spark(lake: Lake) -> None:
    code = (
        "import sys; from tailrace.cli.main import app\n"
        "try:\n    app(['doctor', '--json'])\nexcept SystemExit:\n    pass\n"
        "assert not {'pyspark', 'pandas', 'py4j', 'boto3'} & set(sys.modules), 'a heavy import'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checks"]
