"""A stream of two logs and their join, killed at any moment, loses nothing and doubles nothing: real processes.

It changes its engine as it is started again, and the join is backfilled in between.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from tailrace import Join, Pipeline
from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING, instant
from tailrace.plan.loader import load, load_ranged
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.depth import deep
from tests.support.faults.killing import KILLS, SEED, environment, run_and_kill, run_here
from tests.support.lakes.two_logs import DEFINITION, TwoLogs

if TYPE_CHECKING:
    from tests.support.services.kafka import Broker

pytest_plugins = ["tests.support.services.kafka"]


@pytest.mark.slow
@pytest.mark.timeout(600 * KILLS)
def test_X2_L1_a_stream_of_two_folders_killed_at_many_moments_joins_them_as_plain_sql_does(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    landing = TwoLogs(tmp_path / "landing", random.Random(SEED))
    sources = [word for log in ("views", "clicks") for word in ("--from", f"{log}={landing.folder / log}")]
    killed_and_mended(settings, tmp_path, landing, lambda: landing.land(12), sources, per_epoch=1)


@deep
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600 * KILLS)
def test_X2_L1_a_stream_of_two_topics_killed_at_many_moments_joins_them_as_plain_sql_does(
    broker: Broker, spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    landing = TwoLogs(tmp_path / "landing", random.Random(SEED))
    for log in ("views", "clicks"):
        broker.create(f"killed_{log}", 2)

    def land() -> None:
        for _ in range(12):
            for log, lines in landing.made().items():
                broker.produce(f"killed_{log}", [(place % 2, line) for place, line in enumerate(lines)])

    sources = [word for log in ("views", "clicks") for word in ("--kafka", f"{log}=killed_{log}")]
    sources += ["--bootstrap", broker.bootstrap]
    killed_and_mended(settings, tmp_path, landing, land, sources, per_epoch=20)


def killed_and_mended(
    settings: Settings, folder: Path, landing: TwoLogs, land: Callable[[], None], sources: list[str], per_epoch: int
) -> None:
    """Stream what lands, killed again and again, and compare what stands in the end."""
    file = folder / "ads.py"
    file.write_text(DEFINITION)
    streamed = [f"{file}:{name}" for name in ("earned", "seen", "paid")]
    words = ["stream", *streamed, *sources, "--json", "--per-epoch"]
    join, paid, reader = load_ranged(f"{file}:clicked"), load_ranged(f"{file}:paid"), load(f"{file}:earned")
    lake, env = Lake(settings), environment(settings)
    assert isinstance(join, Join)
    assert isinstance(paid, Join)
    for _ in range(KILLS):
        land()
        engine = landing.chance.choice(["duckdb", "duckdb", "spark"])
        command = [sys.executable, "-m", "tailrace.cli.main", *words, str(per_epoch)]
        assert run_and_kill(command, env | {"TAILRACE_ENGINE": engine}, landing.chance), f"seed {SEED}"
        mended(lake, join, reader)
    run_here(*words, str(8 * per_epoch), "--once", env=env)
    until = mended(lake, join, reader)
    for definition in (join, reader, load(f"{file}:seen"), load(f"{file}:spent"), paid):
        found = audit(lake, definition)
        assert found.ok, f"seed {SEED}: {[check for check in found.checks if not check.ok]}"
    counts = [lake.table(name).scan().count() for name in ("views", "clicks", "clicks__rejected")]
    assert counts == [len(landing.records["views"]), len(landing.records["clicks"]), landing.broken], f"seed {SEED}"
    for one in (join, paid):
        assert replay(lake, one).ok, f"seed {SEED}"
    # Every view is told of as it comes, and what it was told without is taken back.
    taken = lake.table("paid__ledger").scan(row_filter="kind = 'production' AND retraction = true").count()
    assert taken, f"seed {SEED}"
    assert replay(lake, load(f"{file}:seen")).ok, f"seed {SEED}"
    # What a run has mended is what plain SQL makes of all records, late ones included.
    assert standing(lake, until) == [pair for pair in landing.pairs() if pair[2] < until], f"seed {SEED}"


def mended(lake: Lake, join: Join, reader: Pipeline) -> int:
    """Backfill the join as far as its reader's windows are closed, then the reader; return that instant."""
    if not lake.has("earned__ledger"):
        return BEGINNING
    until = reader.closed_until(lake.head("earned__ledger").number("watermark", BEGINNING))
    if until > BEGINNING:
        backfill(lake, join, BEGINNING, until)
        backfill(lake, reader, BEGINNING, until)
    return until


def standing(lake: Lake, until: int) -> list[tuple[Any, ...]]:
    """The pairs that stand, of those before an instant."""
    found: dict[tuple[Any, ...], int] = {}
    rows = lake.table("clicked__ledger").scan(row_filter="kind = 'production'").to_arrow().to_pylist()
    for one in rows:
        pair = one["view"], one["cents"], instant(one["event_time"])
        if one["cents"] is not None and pair[2] < until:
            found[pair] = found.get(pair, 0) + (-1 if one["retraction"] else 1)
    return sorted(pair for pair, count in found.items() for _ in range(count))
