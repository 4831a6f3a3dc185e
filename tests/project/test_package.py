"""The package, built and installed outside the checkout: what is in it, and what each installation can do."""

from __future__ import annotations

import os
import shlex
import subprocess
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

import tailrace
from tailrace.toolchain.extras import extras
from tailrace.toolchain.jars import sha256_of

ROOT = Path(__file__).parents[2]
UV = ROOT / "build" / "uv" / "bin" / "uv"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKING = "TAILRACE_", "PYTHON", "VIRTUAL_ENV", "UV_PROJECT"


def test_the_list_of_extras_is_the_list_of_the_package() -> None:
    assert {*extras()} == {*PROJECT["optional-dependencies"]}
    page = (ROOT / "docs" / "installing.md").read_text()
    for extra in extras().values():
        assert f"| `{extra.name}` | {extra.work} |" in page


def run(*words: str | Path, cwd: Path, home: Path, fails: bool | None = False, **more: str) -> str:
    """Run a command as somebody whose home is empty, and return its output. With `fails` None, it may fail."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ASKING)}
    cache = subprocess.run([UV, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    env = kept | {"HOME": str(home), "UV_CACHE_DIR": cache, "TAILRACE_JARS": str(ROOT / "build" / "jars")} | more
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert fails is None or fails == bool(done.returncode), f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Installation:
    """A project's folder, outside the checkout, and an environment with the wheel in it."""

    folder: Path
    name: str
    dist: Path

    @property
    def bin(self) -> Path:
        return self.folder / self.name / "bin"

    def install(self, *extras: str, pins: Path | None = None, beside: tuple[str, ...] = ()) -> None:
        """Install the wheel with extras, and what is to be beside it, in the versions of the lock or of `pins`."""
        if not self.bin.exists():
            self.uv("venv", "--python", ROOT / ".venv" / "bin" / "python", self.folder / self.name)
        (wheel,) = self.dist.glob("*.whl")
        named = f"{wheel}[{','.join(extras)}]" if extras else wheel
        constraints = "--constraint", pins or self.locked()
        self.uv("pip", "install", "--python", self.bin / "python", *constraints, named, *beside)

    def locked(self) -> Path:
        """Return a file with the versions of the lock."""
        pins = self.folder / "pins.txt"
        words = "--frozen", "--no-emit-project", "--no-hashes", "--all-extras", "--project", ROOT, "--output-file", pins
        self.uv("export", *words)
        return pins

    def uv(self, *words: str | Path) -> None:
        place = str(self.folder / self.name)
        told = "--quiet", "--no-python-downloads"
        run(UV, *told, *words, cwd=self.folder, home=self.folder, UV_PROJECT_ENVIRONMENT=place)

    def tailrace(self, *words: str, fails: bool | None = False, **more: str) -> str:
        return self.run("tailrace", *words, fails=fails, **more)

    def run(self, program: str, *words: str, fails: bool | None = False, **more: str) -> str:
        """Run a program of the environment in the project, or beside it if there is none yet."""
        told = {"COLUMNS": "200", "PYSPARK_PYTHON": str(self.bin / "python")} | more
        place = self.folder / "web-shop"
        return run(
            self.bin / program,
            *words,
            cwd=place if place.exists() else self.folder,
            home=self.folder,
            fails=fails,
            **told,
        )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and a source distribution, built of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


def build(folder: Path) -> None:
    subprocess.run([UV, "build", "--quiet", "--out-dir", folder], cwd=ROOT, check=True, capture_output=True)
    (folder / ".gitignore").unlink(missing_ok=True)


@pytest.mark.slow
def test_the_same_tree_builds_the_same_wheel_and_source(dist: Path, tmp_path: Path) -> None:
    build(tmp_path)
    assert {one.name: sha256_of(one) for one in tmp_path.iterdir()} == {
        one.name: sha256_of(one) for one in dist.iterdir()
    }


@pytest.mark.slow
def test_the_wheel_holds_all_that_is_in_the_package(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    kept = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "spark/tailrace"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    with zipfile.ZipFile(wheel) as file:
        held = set(file.namelist())
        entries = file.read(next(name for name in held if name.endswith("entry_points.txt"))).decode()
    assert held >= {name.removeprefix("spark/") for name in kept if (ROOT / name).is_file()}
    assert "tailrace/dbt/dbt_project.yml" in held
    assert "tailrace/cli/demo/definition/flights.py" in held
    assert {f"tailrace/jobs/{one.name}" for one in (ROOT / "spark" / "jobs").glob("*.py")} <= held
    assert {"tailrace/dbt/macros/" + one.name for one in (ROOT / "dbt" / "macros").iterdir()} <= held
    assert "tailrace = tailrace.cli.main:app" in entries
    assert "tailrace = tailrace.airflow.plugin:TailracePlugin" in entries
    assert "provider_info = tailrace.airflow.provider:get_provider_info" in entries
    assert "tailrace.testing.plugin = tailrace.testing.plugin" in entries
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "spark/tailrace/__init__.py", "dbt/macros/doubles.sql"} <= names
    assert not [name for name in names if name.startswith(("build/", ".venv/", "tests/"))]


BY_DAY = """
{%- set groups = {'day': 'cast(window_start as date)'} -%}
{{ config(materialized='incremental', incremental_strategy='merge', unique_key=['day'],
          post_hook=tailrace_macros.forget_groups('web_shop_by_hour', groups)) }}
{{ tailrace_macros.fed_by_panes('web_shop_by_hour', groups, {'records': 'records', 'half': 'records / 2.0D'}) }}
"""
"""A model of a project of one's own, which has the macros as a package."""


@pytest.mark.system
def test_each_installation_does_what_its_extras_promise(dist: Path, tmp_path: Path) -> None:
    """A project's stream and dbt fill a lake, which is read without any extra, and backfilled with one extra alone."""
    streams, alone = Installation(tmp_path, "streams", dist), Installation(tmp_path, "alone", dist)

    streams.install("spark", "sqlite", "dbt", "testing")
    told = streams.tailrace("init", "web-shop")
    commands = [shlex.split(line) for line in told.splitlines() if line.startswith("    ")]
    assert [words[:2] for words in commands] == [
        ["cd", "web-shop"], ["pip", "install"], ["pytest"], ["tailrace", "setup"], ["tailrace", "dev"],
    ]  # fmt: skip
    stream = "stream", "pipelines/web_shop.py", "--from", "landing", "--once"
    assert "2 passed" in streams.run("python", "-m", "pytest", "-q")
    streams.tailrace(*commands[3][1:])
    assert "400 records" in streams.tailrace(*stream)
    (tmp_path / "web-shop" / "dbt" / "models" / "by_day.sql").write_text(BY_DAY)
    assert "Completed successfully" in streams.tailrace("dbt")
    assert "freshness of tailrace.web_shop_by_hour__ledger" in streams.tailrace("dbt", "--", "source", "freshness")
    assert "Completed successfully" in streams.tailrace(
        "dbt", "--epoch", "0", "--", "run", "--select", "records_by_day"
    )
    # The last of the orders are in an hour that is not complete yet.
    assert "counted 360" in streams.tailrace("sql", "SELECT 'counted ' || SUM(records) AS s FROM marts.records_by_day")

    bundles_outside_the_checkout(streams)

    alone.install()
    definition = "pipelines/web_shop.py"
    assert alone.tailrace("--version").strip() == f"tailrace {tailrace.__version__}"
    assert "NL" in alone.tailrace("simulate", definition, "landing/orders.jsonl")
    assert "web_shop_by_hour" in alone.tailrace("explain", definition)
    assert "web_shop_by_hour" in alone.tailrace("status", definition)
    assert "NL" in alone.tailrace("panes", definition, "--key", "NL")
    alone.run("python", "-c", "import numpy, tailrace.serve.web_application, tailrace.serve.lake_pages")
    spans = "--from", "2026-03-01T08:00:00Z", "--to", "2026-03-01T12:00:00Z"
    assert "pip install 'tailrace[sqlite]'" in alone.tailrace("backfill", definition, *spans, fails=True)
    assert "pip install 'tailrace[spark]'" in alone.tailrace(*stream, fails=True)
    assert "pip install 'tailrace[sqlite]'" in alone.tailrace("doctor", fails=None)
    assert "pip install 'tailrace[spark,sqlite,demo,plot]'" in alone.tailrace("demo", fails=True)

    alone.install("sqlite")
    alone.tailrace("backfill", definition, *spans)
    alone.tailrace("audit", definition)
    alone.tailrace("replay", definition)


def bundles_outside_the_checkout(project: Installation) -> None:
    """The bundle of the project has the wheel that is installed, and all that an Airflow needs of the project."""
    found = os.pathsep.join((str(UV.parent), os.environ["PATH"]))
    said = project.tailrace("bundle", "--no-workers", "--airflow", "3.0.6", fails=True, PATH=found)
    assert "--airflow 3.0.6: Tailrace's DAGs need Airflow <4,>=3.1" in said
    project.tailrace("bundle", "--no-workers", "--airflow", "3.1.0", PATH=found)
    held = project.folder / "web-shop" / "build" / "bundle"
    (wheel,), (made,) = project.dist.glob("*.whl"), held.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(made) as other:
        names = {name for name in one.namelist() if not name.endswith("/RECORD")}
        assert wheel.name == made.name
        assert names == {name for name in other.namelist() if not name.endswith("/RECORD")}
        assert [name for name in names if one.read(name) != other.read(name)] == []
    assert {one.relative_to(held).as_posix() for one in held.rglob("*") if one.is_file()} >= {
        "dags/dags/web_shop.py", "dags/pipelines/web_shop.py", "dags/dbt/packages.yml", "definitions.tar.gz",
        "pipelines/web_shop.py", "plugins.zip", *(f"jobs/{one}.py" for one in ("stream", "backfill", "maintain")),
    }  # fmt: skip
    asked = [line.partition(" ")[0] for line in (held / "requirements.txt").read_text().splitlines()]
    assert {"apache-airflow==3.1.0", f"duckdb=={version('duckdb')}", f"boto3=={version('boto3')}"} <= {*asked}
    lines = (held / "requirements-mwaa.txt").read_text().splitlines()
    assert lines[:2] == ["# For Airflow 3.1.0.", "--constraint /usr/local/airflow/dags/constraints-mwaa.txt"]
    assert lines[-1] == f"/usr/local/airflow/plugins/{wheel.name}"
    assert not [line for line in lines if line.lower().startswith(("apache-airflow", "sqlalchemy", "tailrace"))]
    assert (held / "dags" / "constraints-mwaa.txt").read_text().startswith("apache-airflow==3.1.0")
