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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tailrace.plan.loader import load_all
from tailrace.project.new_project import NewProject, ProjectError, Source
from tailrace.settings import PREFIX, Settings

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
