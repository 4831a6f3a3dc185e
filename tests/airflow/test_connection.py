"""A lake that an Airflow connection names: what holds, whose secrets show nowhere, and what Airflow is told of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")

from airflow.sdk import Connection

from tailrace.airflow.connection import LAKE, TYPE, connected, secret_texts, settings_of
from tailrace.airflow.connection_form import FIELDS
from tailrace.airflow.hook import TailraceHook
from tailrace.runners.jobs import RunnerError
from tailrace.settings import HIDDEN, SECRETS, Settings, SettingsError
from tailrace.testing.lakes import ScratchLake

ROOT = Path(__file__).parents[2]
SECRET = "s3cret-Of-The-Lake"


def connection(password: str | None = None, login: str | None = None, **extra: Any) -> Connection:
    return Connection(
        conn_id="shop_lake", conn_type=TYPE, login=login, password=password, extra=json.dumps(extra) if extra else None
    )


def put(monkeypatch: pytest.MonkeyPatch, one: Connection) -> None:
    """Let Airflow find a connection where it looks first: in a variable of the environment."""
    told = {"conn_type": one.conn_type, "login": one.login, "password": one.password, "extra": one.extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_{one.conn_id.upper()}", json.dumps(told))


def test_a_connection_names_a_whole_lake_and_nothing_of_it_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another lake")
    others = {
        "WAREHOUSE": "/other", "CATALOG": "other", "CATALOG_URI": "https://other", "CATALOG_SCOPE": "all",
        "CATALOG_CREDENTIAL": "id:other", "CATALOG_TOKEN_URI": "https://other/token", "NAMESPACE": "other",
        "CATALOG_WAREHOUSE": "other", "CATALOG_PREFIX": "other", "REGISTRY": "other", "CHECKPOINTS": "/other/checks",
        "CATALOG_SECRET_FILE": str(secret),
    }  # fmt: skip
    for name, value in others.items():
        monkeypatch.setenv(f"TAILRACE_{name}", value)
    monkeypatch.setenv("TAILRACE_MEMORY", "500MB")
    one = connection(warehouse="/lake", serve_rows=7)
    expected = {name: Settings.model_fields[name].default for name in LAKE} | {"warehouse": Path("/lake")}
    found = settings_of(one)
    assert {name: getattr(found, name) for name in LAKE} == expected
    assert (found.memory, found.serve_rows) == ("500MB", 7)

    put(monkeypatch, one)
    before = dict(os.environ)
    with connected("shop_lake"):
        inside = Settings()
        assert {name: getattr(inside, name) for name in LAKE} == expected, "and so for every runner"
        assert (inside.memory, inside.serve_rows) == ("500MB", 7)
    assert dict(os.environ) == before
    with pytest.raises(KeyError), connected("shop_lake"):
        raise KeyError
    assert dict(os.environ) == before
    monkeypatch.delenv("TAILRACE_CATALOG_SECRET_FILE")
    with connected(None):
        assert Settings().warehouse == Path("/other"), "without a connection, the environment holds"


def test_a_file_of_settings_that_names_what_the_connection_leaves_out_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tailrace.toml").write_text('warehouse = "there"\ncheckpoints = "there"\ncatalog_uri = "glue://"\n')
    put(monkeypatch, connection(warehouse="/lake"))
    with pytest.raises(RunnerError, match=r"leaves out what .*tailrace.toml sets \(checkpoints\)") as refused:  # noqa: SIM117
        with connected("shop_lake"):
            pass
    assert not refused.value.again
    put(monkeypatch, connection(warehouse="/lake", checkpoints="/checks"))
    with connected("shop_lake"):
        found = Settings()
        assert (found.warehouse, found.checkpoints, found.catalog_uri) == (Path("/lake"), Path("/checks"), "")


@pytest.mark.parametrize(
    ("login", "catalog", "name", "value"),
    [
        (None, {"catalog_uri": "postgresql://tailrace@db:5432/lake"}, "catalog_secret", SECRET),
        (None, {"catalog_uri": "https://catalog"}, "catalog_secret", SECRET),
        (
            "client",
            {"catalog_uri": "https://catalog", "catalog_token_uri": "https://catalog/token"},
            "catalog_credential",
            f"client:{SECRET}",
        ),
    ],
)
def test_the_password_is_the_secret_of_the_catalog(
    login: str | None, catalog: dict[str, str], name: str, value: str
) -> None:
    settings = settings_of(connection(SECRET, login, warehouse="s3://bucket/lake", **catalog))
    assert getattr(settings, name).get_secret_value() == value
    assert SECRET in secret_texts(settings)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({}, "it names no warehouse"),
        ({"warehouse": "lake"}, "warehouse = 'lake' is relative"),
        ({"warehouse": "/lake", "catalog_uri": "sqlite:///catalog.db"}, "catalog_uri is a relative path"),
        ({"warehouse": "/lake", "ware_house": "/lake"}, "ware_house in its extras is no setting"),
        ({"warehouse": "/lake", "secrets": {"memory": "1GB"}}, "memory in secrets of its extras is no secret"),
        ({"warehouse": "/lake", "secrets": SECRET}, "secrets in its extras is no object"),
        *[({"warehouse": "/lake", name: f"user:{SECRET}"}, f"{name} is a secret: put it") for name in HIDDEN],
    ],
)
def test_a_connection_that_does_not_hold_is_refused_and_its_secrets_are_not_shown(
    extra: dict[str, Any], said: str
) -> None:
    with pytest.raises(RunnerError) as refused:
        settings_of(connection(SECRET, **extra))
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)
    assert not refused.value.again


def test_a_wrong_value_is_refused_without_showing_a_secret() -> None:
    with pytest.raises(SettingsError) as refused:
        settings_of(connection(warehouse="/lake", catalog_uri="ftp://there", secrets={"kafka_credential": SECRET}))
    assert "catalog_uri" in str(refused.value)
    assert "kafka_credential" in str(refused.value)
    assert SECRET not in str(refused.value)
    with pytest.raises(RunnerError, match="extras that are no JSON object"):
        settings_of(Connection(conn_id="x", conn_type=TYPE, extra="[1]"))
    with pytest.raises(RunnerError, match="its type is 'postgres', where tailrace_lake was expected"):
        settings_of(Connection(conn_id="x", conn_type="postgres", extra='{"warehouse": "/lake"}'))


def test_airflow_hides_what_a_connection_holds_of_secrets() -> None:
    from airflow.sdk._shared.secrets_masker import redact

    held = {"warehouse": "/lake", "secrets": dict.fromkeys(SECRETS, f"user:{SECRET}")}
    shown = json.dumps(redact(held))
    assert SECRET not in shown
    assert "/lake" in shown


MASKED = """
import io, logging, sys
from airflow.sdk.log import configure_logging
import structlog
from tailrace.airflow.connection import connected
configure_logging(output=sys.stdout.buffer)
from tailrace.settings import Settings
with connected("shop_lake"):
    held = Settings()
    structlog.get_logger("task").info("a library shows %s and %s", held.catalog_secret.get_secret_value(),
                                      held.kafka_credential.get_secret_value().partition(":")[2])
"""


def test_no_log_of_a_task_shows_a_secret_of_its_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kafka: dict[str, Any] = {
        "kafka_bootstrap": "b:9092",
        "kafka_security": "plain",
        "secrets": {"kafka_credential": "me:oth3rSecret"},
    }
    put(monkeypatch, connection(SECRET, warehouse="/lake", catalog_uri="https://catalog", **kafka))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", MASKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "a library shows" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert "oth3rSecret" not in done.stdout + done.stderr


def test_the_connection_is_tested_with_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lake: ScratchLake
) -> None:
    put(monkeypatch, connection(warehouse=str(tmp_path / "none")))
    fine, said = TailraceHook("shop_lake").test_connection()
    assert (fine, "the first stream makes it" in said) == (True, True)

    lake.tables.catalog  # noqa: B018 - it makes the catalog
    put(monkeypatch, connection(warehouse=str(lake.settings.warehouse)))
    fine, said = TailraceHook("shop_lake").test_connection()
    assert fine
    assert "namespace main, 0 tables" in said

    (tmp_path / "file").write_text("")
    put(monkeypatch, connection(warehouse=str(tmp_path / "file")))
    fine, said = TailraceHook("shop_lake").test_connection()
    assert not fine
    assert "is a file, where a folder was expected" in said
    put(monkeypatch, connection(SECRET, warehouse="/lake", catalog_uri="postgresql://me@127.0.0.1:9/lake"))
    fine, said = TailraceHook("shop_lake").test_connection()
    assert not fine
    assert SECRET not in said
    put(monkeypatch, connection(SECRET))
    fine, said = TailraceHook("shop_lake").test_connection()
    assert (fine, "names no warehouse" in said) == (False, True)
    assert TailraceHook("nowhere").test_connection()[0] is False


def test_airflow_reads_of_the_provider_what_it_wants_to_know() -> None:
    import airflow
    import jsonschema  # type: ignore[import-untyped]

    from tailrace.airflow.provider import get_provider_info

    told = json.loads(json.dumps(get_provider_info()))
    schema = json.loads(files(airflow).joinpath("provider_info.schema.json").read_text("utf-8"))
    jsonschema.validate(told, schema)
    (kind,) = told["connection-types"]
    assert (kind["connection-type"], set(kind["conn-fields"])) == (TYPE, set(FIELDS))
    module, _, name = kind["hook-class-name"].rpartition(".")
    assert getattr(sys.modules[module], name) is TailraceHook
    assert set(FIELDS) < set(Settings.model_fields) - set(HIDDEN), "the form's fields are settings, and no secrets"
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["apache_airflow_provider"] == {"provider_info": "tailrace.airflow.provider:get_provider_info"}


def test_the_provider_is_told_without_an_airflow_which_asks_before_it_can_be_imported() -> None:
    code = (
        "import sys; sys.modules['airflow'] = None; from tailrace.airflow import provider; provider.get_provider_info()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_form_of_the_connection_has_the_fields_in_an_airflow_that_asks_the_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import SimpleNamespace

    made = SimpleNamespace(StringField=lambda label, description: (label, description))
    monkeypatch.setitem(sys.modules, "wtforms", made)
    assert TailraceHook.get_connection_form_widgets() == FIELDS
    assert TailraceHook.get_ui_field_behaviour()["relabeling"]["password"] == "Secret"


def test_every_task_of_a_dag_takes_the_connection_that_its_factory_is_given() -> None:
    from tailrace.airflow import backfill_dag, dbt_dag, maintenance_dag, repair_dag, stream_dag
    from tailrace.airflow.tasks import ReportingOperator

    definition = ROOT / "pipelines" / "flights.py"
    dags = [
        backfill_dag(definition, conn_id="shop_lake"),
        repair_dag(definition, conn_id="shop_lake"),
        maintenance_dag(definition, conn_id="shop_lake"),
        stream_dag(definition, folder="/landing", conn_id="shop_lake"),
        dbt_dag(ROOT / "dbt", reads=["p"], conn_id="shop_lake"),
    ]
    tasks = [task for dag in dags for task in dag.tasks if isinstance(task, ReportingOperator)]
    assert [task.conn_id for task in tasks] == ["shop_lake"] * 7
    assert [getattr(task, "conn_id", None) for task in backfill_dag(definition).tasks] == [None]
    assert {task.retries for task in dags[0].tasks} == {2}, "and what they have by default, they keep"
