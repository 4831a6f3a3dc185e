"""A local cluster of real workers, some of which are lost, and a change of engine and back (X2, X4, L1)."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.backfill.backfill import backfill
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.settings import Settings
from tests.support.depth import deep
from tests.support.faults.racing import Race, racing
from tests.support.services.cluster import SUBMIT, Cluster, cluster
from tests.support.waiting import PATIENT

JOBS = Path(__file__).parents[2] / "spark" / "jobs"
SEED = 20240101
EPOCHS = 8
"""Of the stream on Spark from which workers are lost."""

LOST = (2, 5)
"""After which of its epochs a worker is lost."""

MORE = 3
"""Epochs of the stream on DuckDB after it, and of the one on Spark after that."""

GAP = timedelta(seconds=30)
"""The gap of the definition's sessions."""


def submitted(race: Race, place: Cluster, engine: str, job: str, *words: str, **more: str) -> subprocess.Popen[str]:
    """A job of the cluster with `more` settings; with the engine `spark` its executors compute it."""
    command = [SUBMIT, *place.options, "--driver-memory", "1g", str(JOBS / f"{job}.py"), race.definition, *words]
    race.running.append(
        subprocess.Popen(
            command, env=race.env | place.env | {"TAILRACE_ENGINE": engine} | more,
            text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
    )  # fmt: skip
    return race.running[-1]


def streamed(race: Race, place: Cluster, engine: str, chance: random.Random | None = None) -> list[dict[str, Any]]:
    """Stream what has landed, a file an epoch, and give the reports; with `chance`, workers are lost in between."""
    source = ("--from", str(race.landing.folder), "--per-epoch", "1", "--json", "--once")
    # Executors that are to be lost have the open windows; else the driver has them.
    more = {} if chance is None else {"TAILRACE_WINDOWS_IN_DRIVER": "0"}
    stream = submitted(race, place, engine, "stream", *source, **more)
    assert stream.stdout is not None
    reports = []
    for line in stream.stdout:
        if not line.startswith('{"event": "epoch"'):
            continue
        reports.append(json.loads(line))
        if chance is not None and reports[-1]["epoch"] in LOST:
            time.sleep(chance.random())
            place.lose()
            place.add()
    race.ended(stream, ExitStatus.OK)
    assert {one["engine"] for report in reports for one in report["pipelines"].values()} == {engine}
    return reports


def sessions(folder: Path) -> dict[tuple[str, datetime, datetime], tuple[int, int]]:
    """Clicks and cents of each session of all that landed, by plain Python from the files."""
    clicks = defaultdict(list)
    for file in folder.glob("*.json"):
        for line in file.read_text().splitlines():
            if line.endswith("}"):
                row = json.loads(line)
                clicks[row["who"]].append((datetime.fromisoformat(row["at"]), row["cents"]))
    found = {}
    for who, all_of_them in clicks.items():
        start = end = None
        for at, cents in sorted(all_of_them):
            if start is None or end is None or at >= end:
                start, count, total = at, 0, 0
            end, count, total = at + GAP, count + 1, total + cents
            found[who, start] = (end, count, total)
    return {(who, start, end): (count, total) for (who, start), (end, count, total) in found.items()}


@deep
@pytest.mark.slow
def test_X2_a_cluster_that_loses_workers_is_backfilled_and_changes_engine_and_back_loses_and_doubles_nothing(
    settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    with racing(settings, tmp_path) as race, cluster(tmp_path / "cluster", settings) as place:
        race.landing.land(EPOCHS)
        first = streamed(race, place, "spark", chance)
        assert [one["epoch"] for one in first] == [*range(EPOCHS)]

        before = place.said.count("Launching executor")
        run = submitted(race, place, "spark", "backfill", "--from", "2023-12-31", "--reason", "a worker is lost")
        place.launched(before + 2)
        time.sleep(4 + 4 * chance.random())
        assert run.poll() is None
        place.lose()
        out, err = run.communicate(timeout=PATIENT)
        assert run.returncode == ExitStatus.OK, f"{out}\n{err}"
        assert place.said.count("Removing worker") == len(LOST) + 1
        made = [one for one in Runs(Lake(settings), race.pipeline).all() if one.kind == "backfill"]
        assert {one.status for one in made} == {"committed"}
        race.ends_clean(spark)
        place.add()

        reports = first
        for engine in ("duckdb", "spark"):
            race.landing.land(MORE)
            reports += streamed(race, place, engine)
            race.ends_clean(spark)
        assert [one["epoch"] for one in reports] == [*range(EPOCHS + 2 * MORE)], "each goes on where the other ended"
        _went_on_with_each_others_windows(settings)

        lake, pipeline = Lake(settings), race.pipeline
        backfill(lake, pipeline, BEGINNING, END_OF_TIME, reason="what came too late")
        race.ends_clean(spark)
        passed = moment(lake.head("visits__ledger").number("watermark"))
        rows = lake.table("visits").scan().to_arrow().to_pylist()
        answers = {(row["who"], row["window_start"], row["window_end"]): (row["clicks"], row["cents"]) for row in rows}
        complete = {window: values for window, values in sessions(race.landing.folder).items() if window[2] <= passed}
        assert len(complete) > 1
        assert {window: answers.get(window) for window in complete} == complete


def _went_on_with_each_others_windows(settings: Settings) -> None:
    """There is a window that Spark opened and DuckDB went on with, and one the other way round."""
    epochs = defaultdict(set)
    for row in Lake(settings).table("visits__ledger").scan(row_filter="kind = 'partial'").to_arrow().to_pylist():
        epochs[row["who"], row["window_start"]].add(row["epoch"])
    for handed in (EPOCHS, EPOCHS + MORE):
        assert any(min(seen) < handed <= max(seen) for seen in epochs.values())
