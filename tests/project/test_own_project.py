"""The project that `tailrace init` makes runs as it stands, whatever its records are."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tailrace.lake.catalog.backends import jar_groups
from tailrace.plan.loader import load_all
from tailrace.project.new_project import NewProject, ProjectError, Source
from tailrace.settings import PREFIX, Settings
from tailrace.toolchain.jars import GROUPS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first_pipeline.md"


def rides(folder: Path) -> Path:
    folder.mkdir()
    lines = ["id;at;city"] + [f"{number};2026-03-01 {number % 24:02}:10:00;Paris" for number in range(40)]
    (folder / "rides.csv").write_text("\n".join(lines) + "\n")
    return folder / "rides.csv"


def payments(folder: Path) -> Path:
    folder.mkdir()
    rows = {"id": [*range(40)], "paid": [f"2026-03-01T{number % 24:02}:10:00Z" for number in range(40)]}
    pq.write_table(pa.table(rows), folder / "payments.parquet")
    return folder


def said(folder: Path, *words: str | Path, fails: bool = False) -> str:
    """What a command prints in a folder, without settings of this checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False,
        env=env | {"AIRFLOW_HOME": str(folder / "build" / "airflow"), "COLUMNS": "200"},
    )  # fmt: skip
    assert bool(done.returncode) == fails, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stderr if fails else done.stdout


TAILRACE = Path(sys.executable).with_name("tailrace")


@pytest.mark.parametrize(
    ("records", "source"),
    [(None, "--from landing"), (rides, "--from landing --format csv"), (payments, "--from {data} --format parquet")],
    ids=["its own orders", "a file of CSV", "a folder of Parquet"],
)
def test_a_new_project_runs_as_it_stands(records: Callable[[Path], Path] | None, source: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words: list[str | Path] = [] if records is None else ["--from", records(data)]
    printed = said(tmp_path, TAILRACE, "init", "web-shop", *words)
    project = tmp_path / "web-shop"
    [stage] = load_all([str(project / "pipelines" / "web_shop.py")])
    assert stage.name == "web_shop_by_hour"

    (commands,) = re.findall(r"```sh\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)
    assert [line.strip() for line in printed.splitlines()[3:]] == commands.splitlines()
    told = tomllib.loads((project / "tailrace.toml").read_text())["dev"]
    assert told == f"pipelines/web_shop.py {source.format(data=data)}"
    assert f"tailrace stream {told} --once" in (project / "README.md").read_text()
    for file in filter(Path.is_file, project.rglob("*")):
        text = file.read_bytes().decode(errors="replace")
        assert "<<" not in text
        assert str(tmp_path) not in text or records is payments
        if file.suffix == ".yml":
            yaml.safe_load(text)
    assert {*tomllib.loads((project / "tailrace.toml").read_text())} <= {*Settings.model_fields}
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == "web-shop"
    assert "2 passed" in said(project, sys.executable, "-m", "pytest", "-q")
    if records is None:
        assert "\n".join(("cd web-shop", commands)) in PAGE.read_text()
        dags = "import runpy; print(sorted(one.dag_id for one in runpy.run_path('dags/web_shop.py').values()"
        made = said(project, sys.executable, "-c", f"{dags} if hasattr(one, 'dag_id')))")
        assert made.splitlines()[-1].count("web_shop_by_hour") == 4


def test_a_project_of_dbt_that_would_read_the_tables_as_they_are_now_is_not_run_as_of_an_epoch(tmp_path: Path) -> None:
    said(tmp_path, TAILRACE, "init", "web-shop")
    (tmp_path / "web-shop" / "dbt" / "macros" / "source.sql").unlink()
    refused = said(tmp_path / "web-shop", TAILRACE, "dbt", "--epoch", "0", fails=True)
    assert "dbt has no macro `source`, so its models would read the tables as they are now" in refused


def test_a_folder_with_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "web-shop").mkdir()
    (tmp_path / "web-shop" / "mine").write_text("kept")
    assert "web-shop is there already" in said(tmp_path, TAILRACE, "init", "web-shop", fails=True)
    assert [one.name for one in (tmp_path / "web-shop").iterdir()] == ["mine"]
    assert [one.name for one in tmp_path.iterdir()] == ["web-shop"]


@pytest.mark.parametrize("name", ["Web", "web shop", "../web", "json", "tests", "class", "1st", "a" * 41, ""])
def test_a_name_that_python_cannot_import_is_refused(name: str) -> None:
    with pytest.raises(ProjectError, match="pass another name"):
        NewProject(name, "", "p", "", Source())


def test_the_stream_of_a_topic_reads_the_topic() -> None:
    files = NewProject("web", "", "p", "", Source(None, topic="orders", bootstrap="kafka:9092")).files
    assert tomllib.loads(files["tailrace.toml"])["dev"] == "pipelines/web.py --kafka orders --bootstrap kafka:9092"
    assert "stream pipelines/web.py --kafka orders --bootstrap kafka:9092 --once" in files["README.md"]
    assert 'topic="orders", bootstrap="kafka:9092"' in files["dags/web.py"]
    assert '"--kafka", "orders", "--bootstrap", "kafka:9092"]' in files["Dockerfile"]
    assert "landing/` |" not in files["README.md"]


def test_a_folder_with_any_name_is_quoted_wherever_it_stands() -> None:
    folder = """/data/"Ann's" orders"""
    files = NewProject("web", "", "p", "", Source(folder)).files
    told = tomllib.loads(files["tailrace.toml"])["dev"]
    assert shlex.split(told) == ["pipelines/web.py", "--from", folder]
    assert f"tailrace stream {told} --once" in files["README.md"]
    assert json.loads(files["Dockerfile"].splitlines()[-1].removeprefix("CMD "))[-1] == folder
    assert repr(folder) in ast.unparse(ast.parse(files["dags/web.py"]))


TOPIC = Source(None, topic="orders", bootstrap="localhost:9092")
LAND = Source()
AWAY = Source("""/data/"Ann's" $orders""", format="csv")
SERVICE = {
    "build", "command", "depends_on", "entrypoint", "environment", "healthcheck", "image", "init", "ports", "profiles",
    "restart", "stop_grace_period", "volumes",
}  # fmt: skip
"""What services of `compose.yaml` may say; there is no Docker here that would look at more."""


def composed(source: Source) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(NewProject("web-shop", "", "p", "", source).files["compose.yaml"])
    return found


def filled(value: str) -> str:
    """A value as Docker Compose gives it to a container, with the defaults of all variables."""
    return re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value).replace("$$", "$")


@pytest.mark.parametrize("source", [TOPIC, LAND, AWAY], ids=["topic", "landing", "folder"])
def test_the_services_of_a_project_are_wired_to_one_another(source: Source) -> None:
    told = composed(source)
    assert {*told} == {"name", "services", "volumes"}
    services: dict[str, dict[str, Any]] = told["services"]
    assert {*services} - {"topic"} == {
        "stream", "airflow", "airflow-database", "catalog", "store", "bucket", "kafka",
    }  # fmt: skip
    stages = re.findall(
        r"^FROM \S+ AS (\w+)$", NewProject("web", "", "p", "", source).files["Dockerfile"], re.MULTILINE
    )
    named = set()
    for name, service in services.items():
        assert {*service} <= SERVICE, name
        if "build" in service:
            assert service["build"]["target"] in stages
        else:
            assert re.fullmatch(r"[a-z./]+:([0-9]+\.[0-9.]+|RELEASE\.20[0-9TZ-]+)", service["image"]), name
        assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in service.get("ports", ())), name
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] in ("service_healthy", "service_completed_successfully")
            assert ("healthcheck" in services[other]) == (how["condition"] == "service_healthy"), f"{name}: {other}"
            assert "profiles" not in services[other], f"{name} waits for {other}, which may not be there"
        named |= {one.partition(":")[0] for one in service.get("volumes", ()) if isinstance(one, str)}
        assert all(isinstance(value, str) for value in service.get("environment", {}).values()), name
    assert named <= {*told["volumes"]}
    assert named | {"kafka"} == {*told["volumes"]}
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == len({*ports})


@pytest.mark.parametrize("source", [TOPIC, LAND, AWAY], ids=["topic", "landing", "folder"])
def test_the_stream_and_airflow_of_a_project_have_one_lake(source: Source) -> None:
    services = composed(source)["services"]
    lakes = []
    for name in ("stream", "airflow"):
        told = {key: filled(value) for key, value in services[name]["environment"].items()}
        own = {key.removeprefix(PREFIX).lower(): value for key, value in told.items() if key.startswith(PREFIX)}
        assert {*own} <= {*Settings.model_fields}
        settings = Settings(**own)
        lakes.append((settings.warehouse, settings.catalog_uri, settings.catalog_secret, settings.kafka_bootstrap))
        # Hosts are services, at the ports at which these listen.
        hosts = {*re.findall(r"[/@]([a-z-]+):(\d+)", " ".join(told.values()))} | {("kafka", "19092")}
        assert hosts <= {
            ("catalog", "5432"), ("airflow-database", "5432"), ("store", "9000"), ("kafka", "19092"),
        }  # fmt: skip
        catalog, store = services["catalog"]["environment"], services["store"]["environment"]
        address = f"postgresql://{catalog['POSTGRES_USER']}@catalog:5432/{catalog['POSTGRES_DB']}"
        assert settings.catalog_uri == address
        assert services[name]["environment"]["TAILRACE_CATALOG_SECRET"] == catalog["POSTGRES_PASSWORD"]
        assert services[name]["environment"]["AWS_ACCESS_KEY_ID"] == store["MINIO_ROOT_USER"]
        assert services[name]["environment"]["AWS_SECRET_ACCESS_KEY"] == store["MINIO_ROOT_PASSWORD"]
    assert lakes[0] == lakes[1]
    database = services["airflow-database"]["environment"]["POSTGRES_PASSWORD"]
    assert f"airflow:{database}@airflow-database" in services["airflow"]["environment"][CONNECTION]


CONNECTION = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def test_a_secret_of_the_services_is_a_variable_with_a_default_for_development() -> None:
    for service in composed(TOPIC)["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|ACCESS_KEY|ROOT_USER|STORE_USER", name):
                assert re.fullmatch(r"\$\{[A-Z_]+:-development\}", value), name
            elif name == CONNECTION:
                assert re.search(r":\$\{[A-Z_]+:-development\}@", value)
            else:
                assert "$" not in value


def test_the_stream_of_the_services_reads_what_the_project_reads() -> None:
    stream = composed(TOPIC)["services"]["stream"]
    assert stream["command"] == ["stream", "pipelines/web_shop.py", "--kafka", "orders", "--bootstrap", "kafka:19092"]
    assert "--topic orders" in " ".join(composed(TOPIC)["services"]["topic"]["command"])
    assert "volumes" not in stream

    stream = composed(LAND)["services"]["stream"]
    assert stream["command"] == ["stream", "pipelines/web_shop.py", "--from", "landing", "--format", "json"]
    landing = {"type": "bind", "source": "./landing", "target": "/project/landing", "read_only": True}
    assert stream["volumes"] == [landing] == composed(LAND)["services"]["airflow"]["volumes"]
    assert composed(LAND)["services"]["kafka"]["profiles"] == ["kafka"]

    stream = composed(AWAY)["services"]["stream"]
    assert filled(stream["command"][3]) == filled(stream["volumes"][0]["target"]) == AWAY.folder
    assert "$$orders" in stream["volumes"][0]["source"]


def test_the_images_of_a_project_have_what_the_services_need() -> None:
    files = NewProject("web-shop", "", "p", "", Source()).files
    text, extras = files["Dockerfile"], tomllib.loads(files["pyproject.toml"])["project"]["optional-dependencies"]
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["python:3.12.11-slim-bookworm", "base", "base"]
    asked = {name for found in re.findall(r"'\.\[([a-z,]+)\]'", text) for name in found.split(",")}
    assert asked == {"services", "airflow"} <= {*extras}
    # The stream's image is the last one, which a build without a target makes.
    assert re.findall(r" AS (\w+)$", text, re.MULTILINE)[-1] == "stream"
    (setup,) = re.findall(r"tailrace setup(.*)", text)
    told = Settings(warehouse="s3://lake/warehouse", catalog_uri="postgresql://a@b:5432/c")
    assert {*setup.replace("--group", "").split()} == {*jar_groups(told), "kafka"} <= {*GROUPS}
    # Nothing of this machine is in an image: no secrets, no lake, no environment.
    assert {".env", ".git", ".venv*", "build", "landing"} == {*files[".dockerignore"].split()}
    assert ".env" in files[".gitignore"].split()
