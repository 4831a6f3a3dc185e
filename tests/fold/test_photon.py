"""Two regions with logs of their own and one registry join every click once, one of them down for a while (Photon)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tailrace import Union
from tailrace.generate.delivery import MINUTE, Delivery, by_known_time
from tailrace.lake.change.registry import registry_lake
from tailrace.lake.commit.lease import Lease
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.upkeep.needs import upkeep_tables
from tailrace.operate.maintenance import maintain
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tests.support.checks.ledgers import on
from tests.support.depth import deep
from tests.support.faults.regions import PHOTON, Region, made, otherwise

pytestmark = pytest.mark.spark


def regions(
    settings: Settings, folder: Path, log: list[Delivery], engines: tuple[str, str] = ("duckdb", "spark")
) -> tuple[Region, Region]:
    """Two regions, each on an engine of its own, and with the records of its logs in an order of its own."""
    logs = {"eu": log, "us": otherwise(log, Random(1))}
    named = [settings.model_copy(update={"namespace": n, "engine": e}) for n, e in zip(logs, engines, strict=True)]
    eu, us = (Region(one, folder / one.namespace, logs[one.namespace]) for one in named)
    return eu, us


def drain(region: Region, per_epoch: int = 4) -> list[EpochReport]:
    reports: list[EpochReport] = []
    stream = Stream(region.spark, region.lake, [PHOTON], region.sources(per_epoch), watch=reports.append)
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()
    return reports


def test_X6_two_regions_join_every_click_once_and_one_that_was_down_catches_up(
    settings: Settings, tmp_path: Path
) -> None:
    eu, us = regions(settings, tmp_path, made(3))
    eu.lands(3)
    drain(eu, 1)
    us.lands(2)
    drain(us, 1)
    # One is down, and the other goes on with everything.
    us.lands()
    drain(us, 20)
    before = eu.joined
    eu.lands()
    reports = drain(eu, 20)
    assert before <= eu.joined
    assert sum(report.folded["photon"].claimed for report in reports) > 20
    for one in (eu, us):
        one.adds_up()
        assert one.plain() == one.joined + one.claimed
    both = eu.joined + us.joined
    assert set(both.values()) == {1}
    assert both == Counter(set(eu.plain()) | set(us.plain()))
    assert min(sum(one.joined.values()) for one in (eu, us)) > 0
    registry = registry_lake(eu.lake)
    assert registry.settings.namespace not in ("eu", "us")
    claims = eu.spark.sql(f"SELECT id, claimant FROM {registry.spark_name('joined_clicks')}").collect()
    whose = {row["id"]: row["claimant"] for row in claims}
    assert len(whose) == len(claims)
    assert whose == dict.fromkeys(eu.joined, "eu.photon") | dict.fromkeys(us.joined, "us.photon")
    # The branches that were claimed on are gone, and maintenance keeps the registry small, too.
    assert set(registry.refs("joined_clicks")) == {"main"}
    assert "joined_clicks" in {one.table for one in maintain(us.spark, us.lake, PHOTON).tables}
    assert "joined_clicks" not in {one.name for one in upkeep_tables(us.lake, PHOTON)}
    eu.adds_up()


def test_X2_what_was_claimed_and_not_yet_counted_counts_when_the_epoch_is_folded_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu, us = regions(settings, tmp_path, made(4), ("duckdb", "duckdb"))
    eu.lands(1)
    drain(eu)
    eu.lands()
    dies = RuntimeError("it dies here")

    def commit(lease: Lease, *given: object) -> bool:
        raise dies

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "commit", commit)
        with pytest.raises(RuntimeError, match="it dies here"):
            drain(eu)
    registry = registry_lake(eu.lake)
    claims = f"SELECT COUNT(*) FROM {registry.spark_name('joined_clicks')} WHERE claimant = 'eu.photon'"
    claimed = eu.spark.sql(claims).collect()[0][0]
    assert claimed > sum(eu.joined.values())
    # While it is down the other finds them taken.
    us.lands()
    drain(us)
    assert sum(us.claimed.values()) == claimed
    # What one engine claimed is its own to the other.
    eu.lake = on(eu.lake, "spark")
    drain(eu)
    assert sum(eu.joined.values()) == claimed
    for one in (eu, us):
        one.adds_up()
        assert one.plain() == one.joined + one.claimed
    assert set((eu.joined + us.joined).values()) == {1}


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=deep)])
def test_what_comes_twice_in_one_log_counts_once_in_an_epoch_and_over_epochs(
    settings: Settings, tmp_path: Path, engine: str
) -> None:
    # Without their ids, the logs have what was brought twice.
    parts = tuple(replace(part, record_id=()) for part in PHOTON.log.parts)
    twice, log = replace(PHOTON, log=Union(name=PHOTON.log.name, of=parts)), made(5, rate=3)
    clicks = [one for one in log if one.log == "clicks"][:40]
    again = [replace(one, known=one.known + (number % 2) * 5 * MINUTE) for number, one in enumerate(clicks)]
    region, _ = regions(settings, tmp_path, by_known_time([*log, *again]), (engine, engine))
    region.lands()
    stream = Stream(region.spark, region.lake, [twice], region.sources(3))
    stream.start(once=True)
    stream.wait()
    stream.close()
    joined, claimed = region.joined, region.claimed
    assert set(joined.values()) == {1}
    assert set(claimed) <= set(joined)
    assert sum(claimed.values()) >= 35
    places = region.spark.sql(
        f"SELECT p.epoch = c.epoch FROM photon__ledger p JOIN photon__ledger c USING (click_id) "
        f"WHERE p.kind = '{PRODUCTION}' AND c.kind = 'claimed'"
    ).collect()
    assert {row[0] for row in places} == {True, False}
