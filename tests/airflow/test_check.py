"""`tailrace airflow check` with faults as people have them: each is found, with what mends it."""

from __future__ import annotations

import json
import sys
import venv
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")

from tailrace.airflow import checks
from tailrace.airflow.connection import TYPE
from tailrace.cli.main import app
from tailrace.doctor import machine_checks
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings

ROOT = Path(__file__).parents[2]

DAG = """
from pathlib import Path
from tailrace.airflow import backfill_dag
from tailrace.runners import Venv
print("a file that prints")
backfill = backfill_dag(Path("{definition}"){more})
"""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation from before the provider was added has no entry point for it."""
    monkeypatch.setattr(checks, "_has_entry_point", lambda group: True)
    monkeypatch.setattr(machine_checks, "missing_jars", lambda folder, groups: [])


@pytest.fixture
def dags(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a DAG file of a lake that is there, and in which nothing is wrong."""
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with closing(Lake(settings).catalog):
        pass
    folder = tmp_path / "dags"
    folder.mkdir()
    write(folder)
    return folder


def write(folder: Path, more: str = "", definition: Path = ROOT / "pipelines" / "flights.py") -> None:
    (folder / "flights.py").write_text(DAG.format(definition=definition, more=more))


def found(folder: Path, *words: str) -> dict[str, Any]:
    """Each check's finding, by its name."""
    result = CliRunner().invoke(app, ["airflow", "check", "--dags", str(folder), "--json", *words])
    told = json.loads(result.stdout)
    assert result.exit_code == (1 if told["wrong"] else 0), result.output
    return {one["name"]: one for one in told["checks"]}


def wrong(folder: Path, *words: str) -> dict[str, str]:
    """What is wrong, by the name of the check, each with what mends it."""
    told = {name: one for name, one in found(folder, *words).items() if one["state"] == "wrong"}
    assert all(one["mend"] for one in told.values()), told
    return {name: f"{one['found']} → {one['mend']}" for name, one in told.items()}


def test_an_airflow_in_which_all_is_right_is_said_to_be_right(dags: Path, settings: Settings) -> None:
    told = found(dags)
    assert {one["state"] for one in told.values()} <= {"ok", "not looked at"}, told
    assert told["dags: flights.py"]["found"] == "hourly_departures.backfill"
    assert told["settings"]["found"] == f"the lake is {settings.warehouse}"
    assert {"python", "apache-airflow", "pyiceberg", "sqlalchemy", "catalog", "commits", "warehouse"} <= set(told)
    assert "pyspark" not in told, "these DAGs need no Spark"


def test_what_is_wrong_with_the_files_of_the_dags_is_found(dags: Path, tmp_path: Path) -> None:
    write(dags, definition=tmp_path / "none.py")
    (dags / "ill.py").write_text("import tailrace, no_such_package\n")
    (dags / "ends.py").write_text("import sys, tailrace\nsys.exit(3)\n")
    (dags / "others.py").write_text("raise RuntimeError('of somebody else')\n")
    told = wrong(dags)
    assert set(told) == {"dags: flights.py", "dags: ill.py", "dags: ends.py"}
    assert "none.py" in told["dags: flights.py"]
    assert "no_such_package" in told["dags: ill.py"]
    for file in dags.glob("*.py"):
        file.unlink()
    other = tmp_path / "other.py"
    other.write_text((ROOT / "pipelines" / "flights.py").read_text())
    write(dags)
    (dags / "twice.py").write_text(DAG.format(definition=other, more=""))
    assert "more than one pipeline named hourly_departures" in wrong(dags)["names"]
    for file in dags.glob("*.py"):
        file.unlink()
    assert "no file in" in wrong(dags)["dags"]
    assert "cannot be read" in wrong(tmp_path / "nowhere")["dags"]


def test_what_is_wrong_with_a_lake_is_found(dags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path / "file"))
    assert "is a file, where a folder was expected" in wrong(dags)["warehouse"]
    monkeypatch.setenv("TAILRACE_WAREHOUSE", "ftp://there")
    assert "set TAILRACE_WAREHOUSE" in found(dags)["settings"]["found"]


@pytest.mark.slow
def test_what_is_wrong_with_a_connection_is_found(
    dags: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(**extra: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_SHOP_LAKE", json.dumps({"conn_type": TYPE, "extra": json.dumps(extra)}))

    (dags / "flights.py").write_text(
        "from airflow.sdk import DAG\nfrom datetime import timedelta\n"
        "from tailrace.airflow.sensors import FreshnessSensor\n"
        "with DAG('own', schedule=None) as own:\n"
        "    FreshnessSensor(task_id='fresh', of='p', within=timedelta(hours=1), conn_id='shop_lake')\n"
    )
    put(warehouse=str(settings.warehouse))
    told = found(dags)
    assert told["connection shop_lake"]["state"] == "ok"
    assert told["commits of shop_lake"]["state"] == "ok"
    assert "settings" not in told, "no task takes the lake of the environment"
    put(catalog_uri="sqlite:////lake/catalog.db")
    told = found(dags)
    assert "names no warehouse" in told["connection shop_lake"]["found"]
    monkeypatch.delenv("AIRFLOW_CONN_SHOP_LAKE")
    monkeypatch.setattr(checks, "_PROBE", "")
    monkeypatch.setenv("AIRFLOW_HOME", str(dags))
    assert "airflow connections add shop_lake" in wrong(dags)["connection shop_lake"]


@pytest.mark.slow
def test_what_is_wrong_with_a_venv_is_found(dags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(dags, more=f", runner=lambda: Venv({sys.prefix!r})")
    assert found(dags)[f"venv {sys.prefix}"]["state"] == "ok"
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    write(dags, more=f", runner=lambda: Venv({str(bare)!r})")
    said = wrong(dags)[f"venv {bare}"]
    assert "cannot import tailrace" in said
    assert f"{bare}/bin/python -m pip install" in said
    write(dags, more=f", runner=lambda: Venv({str(tmp_path / 'none')!r})")
    assert "cannot be run (No such file or directory)" in wrong(dags)[f"venv {tmp_path / 'none'}"]
    write(dags, more=f", runner=lambda: Venv({sys.prefix!r})")
    monkeypatch.setattr("tailrace.__version__", "0.0.1")
    assert "and Airflow's environment has 0.0.1" in wrong(dags)[f"venv {sys.prefix}"]
    write(dags, more=", runner=lambda: 1 / 0")
    assert "division by zero" in wrong(dags)["runner"]


def test_what_streams_and_clusters_need_is_looked_at(
    dags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TAILRACE_CHECKPOINTS", str(tmp_path / "file"))
    (dags / "flights.py").write_text(
        "from pathlib import Path\nfrom tailrace.airflow import backfill_dag, stream_dag\n"
        "from tailrace.runners import Submit\n"
        f"definition = Path({str(ROOT / 'pipelines' / 'flights.py')!r})\n"
        f"stream = stream_dag(definition, folder={str(tmp_path / 'landing')!r})\n"
        "submit = lambda: Submit('spark://m:7077', Path('/none'), command='no-spark')\n"
        "backfill = backfill_dag(definition, runner=submit)\n"
    )
    told = wrong(dags)
    assert "TAILRACE_CHECKPOINTS" in told["checkpoint folder"]
    assert "cannot be read (No such file or directory)" in told["landing landing"]
    assert "no-spark is no command here" in told["spark-submit"]
    assert found(dags)["pyspark"]["state"] == "ok"
    (tmp_path / "landing").mkdir()
    assert "landing landing" not in wrong(dags)


def test_versions_that_do_not_hold_are_found(dags: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = version
    held = {"apache-airflow": "2.11.0", "sqlalchemy": "1.4.54", "pyiceberg": "0.9.0"}
    monkeypatch.setattr(machine_checks, "version", lambda name: held.get(name) or real(name))
    monkeypatch.setattr(sys, "version_info", (3, 10, 1, "final", 0))
    told = wrong(dags)
    assert "2.11.0, the project needs <4,>=3.1" in told["apache-airflow"]
    assert "1.4.54, the project needs >=2.0.18" in told["sqlalchemy"]
    assert "pip install 'pyiceberg==0.12.0'" in told["pyiceberg"]
    assert "3.10.1, the project needs" in told["python"]
    monkeypatch.setattr(checks, "_has_entry_point", lambda group: group == checks.PLUGIN)
    assert "no entry point in apache_airflow_provider" in wrong(dags)["provider"]


def test_an_environment_without_airflow_is_said_to_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.cli.commands.run.airflow.find_spec", lambda name: None)
    assert "with the Python of Airflow's environment" in wrong(tmp_path)["apache-airflow"]
