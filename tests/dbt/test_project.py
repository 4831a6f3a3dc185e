"""The dbt project builds on a lake after a stream, a backfill and a change of shape; incremental is a full refresh."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from math import fsum
from pathlib import Path
from typing import Any

import pytest

from tailrace.generate.flights import landing_cuts, load, write_files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import moment
from tailrace.model.combiners.basic import ENDLESS, LIMBS
from tailrace.settings import Settings
from tailrace.sql.double_limbs import limbs, real_of_limbs
from tests.support.depth import deep
from tests.support.processes.shell import shell
from tests.support.services.thrift import thrift

ROOT = Path(__file__).parents[2]
CHANGED = """
from dataclasses import replace

from pipelines import flights

log = replace(flights.flights, columns=dict(flights.flights.columns) | {"tail": "string"})
hourly_departures = replace(flights.hourly_departures, log=log)
"""
MEANS = """
{%- set groups = {'origin': 'origin', 'day': 'cast(window_start as date)'} -%}
{{ config(materialized='incremental', incremental_strategy='merge', unique_key=['origin', 'day']) }}
{{ fed_by_panes('hourly_departures', groups, {'flights': 'flights', 'means': 'mean_delay'}) }}
"""


def test_M7_the_macros_for_doubles_have_the_sql_of_tailrace() -> None:
    text = (ROOT / "dbt" / "macros" / "doubles.sql").read_text()
    assert re.findall(r'^ +"(.*)",?$', text, re.MULTILINE) == list(limbs("_value_"))
    (total,) = re.findall(r'return\("(.*)" \|', text)
    assert total == real_of_limbs(*(f"_name___{name}" for name in (*LIMBS, *ENDLESS)))


@dataclass(frozen=True)
class Case:
    """A folder with a lake and a copy of the project."""

    folder: Path
    run: Callable[..., str]

    def build(self, *words: str, epoch: int | None = None) -> dict[str, str]:
        """How each node of the project ended; as of an epoch, if one is given."""
        pinned = [] if epoch is None else ["--epoch", str(epoch)]
        self.run("dbt", *pinned, "--", "build", *words)
        found = json.loads((self.folder / "build" / "dbt" / "run_results.json").read_text())
        return {one["unique_id"].split(".", 1)[1]: one["status"] for one in found["results"]}

    def rows(self, mart: str, schema: str = "marts") -> list[dict[str, Any]]:
        lake = Lake(Settings(warehouse=self.folder / "build" / "lake", namespace=schema))
        rows = lake.table(mart).scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    """Start a shell; the first stream in it takes 7 seconds more, the first build of dbt 12."""
    with shell(tmp_path, {"TAILRACE_JARS": str(ROOT / "build" / "jars"), "PYTHONPATH": str(tmp_path)}) as running:
        yield Case(tmp_path, running.run)


@pytest.mark.slow
def test_dbt_builds_after_each_of_them_and_incremental_is_a_full_refresh(tmp_path: Path, case: Case) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    shutil.copytree(ROOT / "dbt", tmp_path / "dbt")
    (tmp_path / "dbt" / "models" / "marts" / "daily_means.sql").write_text(MEANS)
    first, last = date(2013, 3, 7), date(2013, 3, 10)
    write_files(load(first, last), tmp_path / "all", landing_cuts(first, last, fine_day=date(2013, 3, 8)))
    files = sorted((tmp_path / "all").iterdir())
    (tmp_path / "landing").mkdir()

    def land(some: list[Path]) -> None:
        for file in some:
            shutil.move(file, tmp_path / "landing" / file.name)
        case.run("stream", "pipelines/flights.py", "--from", "landing", "--format", "json", "--once")

    land(files[: len(files) // 2])
    land(files[len(files) // 2 :])
    assert set(case.build().values()) <= {"success", "pass"}
    streamed = case.rows("daily_departures")
    pinned = ("--select", "+daily_departures", "--exclude", "resource_type:test", "--vars", "staging: table")
    assert set(case.build(*pinned, epoch=0).values()) <= {"success", "pass"}
    then = case.run("sql", "--epoch", "0", "select sum(flights) from hourly_departures", "--format", "csv")
    by_day = sum(row["flights"] for row in case.rows("daily_departures", "marts_epoch_0"))
    assert by_day == int(then.split()[1])
    assert sum(row["flights"] for row in streamed) > by_day > 0
    changed = case.run(
        "backfill", "pipelines/flights.py", "--from", "2013-03-08", "--to", "2013-03-09", "--reason", "storm"
    )
    assert "changed" in changed
    case.build()
    incremental = {
        mart: case.rows(mart)
        for mart in ("daily_departures", "daily_means", "restatements", "restated_hours", "late_by_day")
    }
    answers = Lake(Settings(warehouse=tmp_path / "build" / "lake")).table("hourly_departures").scan().to_arrow()
    by_group = defaultdict[tuple[str, date], list[float]](list)
    for row in answers.to_pylist():
        by_group[row["origin"], row["window_start"].date()].append(row["mean_delay"] or 0.0)
    means = {(row["origin"], row["day"]): row["means"] for row in incremental["daily_means"]}
    assert means == {group: fsum(values) for group, values in by_group.items()}, "a sum of doubles is rounded once"
    assert incremental["daily_departures"] != streamed, "the backfill's panes came in, retractions and all"
    assert any(row["why"] == "backfill: storm" for row in incremental["restatements"])
    of_storm = [row for row in incremental["restated_hours"] if row["backfilled"]]
    assert of_storm
    assert all(row["flights"] >= row["flights_on_time"] for row in of_storm if row["flights_on_time"] is not None)

    (tmp_path / "changed.py").write_text(CHANGED)
    assert "done: add column tail (string)" in case.run("tables", "apply", "changed.py")
    case.run("tables", "sources", "changed.py")
    case.build("--full-refresh")
    assert {mart: case.rows(mart) for mart in incremental} == incremental
    columns = case.run("sql", "select * from marts.stg_flights limit 1", "--format", "csv").splitlines()[0].split(",")
    assert "tail" in columns
    assert "_epoch" not in columns
    case.run("dbt", "--", "source", "freshness")
    found = json.loads((tmp_path / "build" / "dbt" / "sources.json").read_text())
    by_name = {one["unique_id"].split(".")[-1]: one for one in found["results"]}
    assert by_name["flights"]["status"] == "pass", "records of 2013 are not stale for being old"
    watermark = moment(Lake(Settings(warehouse=tmp_path / "build" / "lake")).head("flights").number("watermark"))
    assert by_name["flights"]["max_loaded_at"] == watermark.isoformat()


@deep
@pytest.mark.slow
def test_the_marts_of_the_ads_add_up_to_the_bills_after_a_backfill(tmp_path: Path, case: Case) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    shutil.copytree(ROOT / "dbt", tmp_path / "dbt")
    # The second day's views take the watermark past the first day's bills.
    for begin, minutes in (("2026-01-01", 600), ("2026-01-02T12:00Z", 1)):
        words = ("--rate", "0.1", "--minutes", str(minutes), "--begin", begin, "--every", "3600")
        case.run("generate", "ads", "--to", "landing", *words)
    case.run("stream", "pipelines/ads.py", "--from", "landing", "--format", "json", "--per-epoch", "3", "--once")

    marts = ("owed_by_month", "bill_restatements", "restated_bills")
    select = ("--vars", "ads: true", "--select", *marts)
    assert set(case.build(*select).values()) <= {"success", "pass"}
    streamed = case.rows("owed_by_month")
    case.run("backfill", "pipelines/ads.py", "--from", "2026-01-01", "--to", "2026-01-02", "--reason", "offline views")
    assert set(case.build(*select).values()) <= {"success", "pass"}
    incremental = {mart: case.rows(mart) for mart in marts}
    assert incremental["owed_by_month"] != streamed, "the backfill counts what came too late"
    assert any(row["why"] == "backfill: offline views" for row in incremental["restated_bills"])
    assert all(isinstance(row["owed"], Decimal) for row in incremental["owed_by_month"])

    # Whoever has a server builds the same with dbt alone.
    settings = Settings(warehouse=tmp_path / "build" / "lake", driver_memory="1g", shuffle_partitions=2)
    # Clients of Hive begin with `USE default`.
    Lake(settings).catalog.create_namespace_if_not_exists("default")
    with thrift(settings, tmp_path / "server") as port:
        told = {"TAILRACE_DBT_METHOD": "thrift", "TAILRACE_DBT_PORT": str(port), "TAILRACE_DBT_SCHEMA": "served"}
        places = [word for name in ("project", "profiles") for word in (f"--{name}-dir", str(tmp_path / "dbt"))]
        command = [str(Path(sys.executable).with_name("dbt")), "build", *select, *places]
        done = subprocess.run(
            command, cwd=tmp_path / "server", env=os.environ | told, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
    assert {mart: case.rows(mart, "served") for mart in marts} == incremental


MODES = """
from dataclasses import replace

from pipelines import flights
from tailrace import ACCUMULATING, DISCARDING, RETRACTING

modes = {"retracting": RETRACTING, "accumulating": ACCUMULATING, "discarding": DISCARDING}
retracting, accumulating, discarding = (
    replace(flights.hourly_departures, name=name, how=how) for name, how in modes.items()
)
"""
FED = """
{{%- set groups = {{'origin': 'origin', 'day': 'cast(window_start as date)'}} -%}}
{{{{ config(materialized='incremental', incremental_strategy='merge', unique_key=['origin', 'day']) }}}}
{{{{ fed_by_panes('{mode}', groups, {{'flights': 'flights', 'departures': 'departures'}}) }}}}
"""


@deep
@pytest.mark.slow
def test_a_model_fed_by_panes_is_the_same_whatever_they_say_of_one_another(tmp_path: Path, case: Case) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    shutil.copytree(ROOT / "dbt", tmp_path / "dbt")
    (tmp_path / "modes.py").write_text(MODES)
    modes = ("retracting", "accumulating", "discarding")
    models = tmp_path / "dbt" / "models" / "modes"
    models.mkdir()
    for mode in modes:
        (models / f"by_{mode}.sql").write_text(FED.format(mode=mode))
    definitions = [f"modes.py:{mode}" for mode in modes]
    case.run("tables", "sources", "pipelines/flights.py", *definitions)
    first, last = date(2013, 3, 8), date(2013, 3, 10)
    write_files(load(first, last), tmp_path / "all", landing_cuts(first, last, fine_day=first))
    files = sorted((tmp_path / "all").iterdir())
    (tmp_path / "landing").mkdir()

    def built(*words: str) -> list[list[dict[str, Any]]]:
        assert set(case.build("--select", "path:models/modes", *words).values()) == {"success"}
        found = [case.rows(f"by_{mode}") for mode in modes]
        plain = [[{n: v for n, v in row.items() if not n.startswith("_")} for row in rows] for rows in found]
        assert plain[0] == plain[1] == plain[2]
        return plain

    half = len(files) // 2
    for part in (files[:half], files[half:]):
        for file in part:
            shutil.move(file, tmp_path / "landing" / file.name)
        case.run("stream", *definitions, "--from", "landing", "--format", "json", "--per-epoch", "25", "--once")
        streamed = built()
    for definition in definitions:
        case.run("backfill", definition, "--from", "2013-03-08", "--to", "2013-03-09")
    backfilled = built()
    assert backfilled != streamed
    assert built("--full-refresh") == backfilled
