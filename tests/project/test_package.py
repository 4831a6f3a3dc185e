"""The package, built and installed outside the checkout: what is in it, and what each installation can do."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import tailrace
from tailrace.toolchain.extras import extras
from tailrace.toolchain.jars import sha256_of

ROOT = Path(__file__).parents[2]
UV = ROOT / "build" / "uv" / "bin" / "uv"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEFINITION = '''\
"""Rides by city and hour."""

from tailrace import Count, Fixed, Log, Pipeline, hours

rides = Log(name="rides", columns={"at": "timestamp", "city": "string"}, event_time="at")
pipeline = Pipeline(name="hourly_rides", log=rides, key="city", what={"rides": Count()}, where=Fixed(hours(1)))
'''
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

    def install(self, *extras: str) -> None:
        """Install the wheel with these extras, in the versions of the lock."""
        if not self.bin.exists():
            self.uv("venv", "--python", ROOT / ".venv" / "bin" / "python", self.folder / self.name)
        pins = self.folder / "pins.txt"
        words = "--frozen", "--no-emit-project", "--no-hashes", "--all-extras", "--project", ROOT, "--output-file", pins
        self.uv("export", *words)
        (wheel,) = self.dist.glob("*.whl")
        named = f"{wheel}[{','.join(extras)}]" if extras else wheel
        self.uv("pip", "install", "--python", self.bin / "python", "--constraint", pins, named)

    def uv(self, *words: str | Path) -> None:
        run(UV, "--quiet", "--no-python-downloads", *words, cwd=self.folder, home=self.folder)

    def python(self, text: str) -> None:
        run(self.bin / "python", "-c", text, cwd=self.folder, home=self.folder)

    def tailrace(self, *words: str, fails: bool | None = False) -> str:
        told = {"COLUMNS": "200", "PYSPARK_PYTHON": str(self.bin / "python")}
        return run(self.bin / "tailrace", *words, cwd=self.folder, home=self.folder, fails=fails, **told)


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
    assert {"tailrace/dbt/macros/" + one.name for one in (ROOT / "dbt" / "macros").iterdir()} <= held
    assert "tailrace = tailrace.cli.main:app" in entries
    assert "tailrace = tailrace.airflow.plugin:TailracePlugin" in entries
    assert "tailrace.testing.plugin = tailrace.testing.plugin" in entries
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "spark/tailrace/__init__.py", "dbt/macros/doubles.sql"} <= names
    assert not [name for name in names if name.startswith(("build/", ".venv/", "tests/"))]


@pytest.mark.system
def test_each_installation_does_what_its_extras_promise(dist: Path, tmp_path: Path) -> None:
    """A lake that a stream made is read without any extra, and backfilled with the extra of its catalog alone."""
    (tmp_path / "rides.py").write_text(DEFINITION)
    (tmp_path / "landing").mkdir()
    lines = [json.dumps({"at": f"2026-03-01T{hour:02}:10:00Z", "city": "Paris"}) for hour in range(6)]
    (tmp_path / "landing" / "rides.jsonl").write_text("\n".join(lines) + "\n")
    streams, alone = Installation(tmp_path, "streams", dist), Installation(tmp_path, "alone", dist)

    streams.install("spark", "sqlite")
    streams.tailrace("stream", "rides.py", "--from", "landing", "--format", "json", "--once")

    alone.install()
    assert alone.tailrace("--version").strip() == f"tailrace {tailrace.__version__}"
    assert "Paris" in alone.tailrace("simulate", "rides.py", "landing/rides.jsonl")
    assert "hourly_rides" in alone.tailrace("explain", "rides.py")
    assert "hourly_rides" in alone.tailrace("status", "rides.py")
    assert "Paris" in alone.tailrace("panes", "rides.py", "--key", "Paris")
    alone.python("import numpy, tailrace.serve.web_application, tailrace.serve.lake_pages")
    spans = "--from", "2026-03-01T00:00:00Z", "--to", "2026-03-01T04:00:00Z"
    assert "pip install 'tailrace[sqlite]'" in alone.tailrace("backfill", "rides.py", *spans, fails=True)
    wanted = "stream", "rides.py", "--from", "landing", "--format", "json", "--once"
    assert "pip install 'tailrace[spark]'" in alone.tailrace(*wanted, fails=True)
    assert "pip install 'tailrace[sqlite]'" in alone.tailrace("doctor", fails=None)

    alone.install("sqlite")
    alone.tailrace("backfill", "rides.py", *spans)
    alone.tailrace("audit", "rides.py")
    alone.tailrace("replay", "rides.py")


@pytest.mark.system
@pytest.mark.parametrize("airflow", ["apache-airflow==3.1.0", "apache-airflow>=3.3.2,<4", "sqlalchemy<2"])
def test_the_package_resolves_beside_the_airflows_that_it_allows(airflow: str, tmp_path: Path) -> None:
    asked = tmp_path / "asked.txt"
    extra = "" if airflow.startswith("sqlalchemy") else "[airflow]"
    asked.write_text(f"tailrace{extra} @ file://{ROOT}\n{airflow}\n")
    python = ROOT / ".venv" / "bin" / "python"
    run(UV, "pip", "compile", "--quiet", "--no-config", "--python", python, asked, cwd=tmp_path, home=tmp_path)
