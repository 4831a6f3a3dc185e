"""Maps on real tables: rows out, once, on either engine; a backfill mends what a step gives otherwise by now."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import RETRACTING, Col, Count, Derive, Each, Fixed, Map, Match, Pipeline, Sum, seconds
from tailrace.backfill.backfill import backfill, backfill_stages
from tailrace.engines.choose import EnginePolicy
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.model.base.time import instant
from tailrace.model.definition import map as maps
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.fold.test_engines import CALLS, EPOCHS, START, land


def parts(**times: int) -> Map:
    """So many rows of a record by who called. It is one definition to a lake, whose code may be another by now."""

    def each(record: Mapping[str, Any]) -> list[dict[str, Any]]:
        if record["cents"] == 8:
            raise ValueError("too dear")
        return [{"part": place} for place in range(times[record["who"]])]

    return Map(name="call_parts", log=CALLS, each=Each(each, {"part": "int"}), what=("who", "cents", "part"))


EUROS = Map(
    name="dear_calls",
    log=CALLS,
    each=Derive({"twice": Col("cents") * 2}),
    keep=Match("cents", ">", 2),
    what=("who", "twice"),
)
PARTS = parts(a=2, b=1, c=0)
MENDED = parts(a=0, b=3, c=0)
SUMS = Pipeline(
    name="dear_sums",
    log=EUROS.produced,
    key="who",
    what={"n": Count(), "twice": Sum("twice")},
    where=Fixed(seconds(60)),
    how=RETRACTING,
)
DEFINITIONS: list[Definition] = [EUROS, PARTS, SUMS]


def given(one: Map, records: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What the reference gives of records, each row as often as it is given."""
    return Counter((*row.values.values(), row.at) for row in maps.step(one, records, 0)[0])


def standing(lake: Lake, one: Map) -> Counter[tuple[Any, ...]]:
    """The rows of the ledger that stand: the latest of each record, but for what is taken back."""
    rows = lake.table(f"{one.name}__ledger").scan("kind = 'production'").to_arrow().to_pylist()
    place = ("source_epoch", "source_partition", "source_offset")
    latest: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in rows:
        at, version = tuple(row[name] for name in place), (row["generation"], row["epoch"])
        latest[at] = max(latest.get(at, version), version)
    return Counter(
        (*(row[name] for name in one.results), instant(row["event_time"]))
        for row in rows
        if latest[tuple(row[name] for name in place)] == (row["generation"], row["epoch"]) and not row["retraction"]
    )


def test_L1_V4_a_map_gives_each_record_once_and_a_backfill_what_its_steps_give_by_now(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, chance = tmp_path / "landing", random.Random(5)
    folder.mkdir()
    records, lake, reports = land(folder, 5), Lake(settings), list[EpochReport]()
    takes = EnginePolicy.takes
    monkeypatch.setattr(EnginePolicy, "takes", lambda *said, **ids: chance.random() < 0.75 and takes(*said, **ids))
    while len(reports) < EPOCHS:
        stream = Stream(plain, lake, DEFINITIONS, Files(str(folder), "json", 1), watch=reports.append)
        before, most = len(reports), chance.randrange(2, 6)
        stream.start(once=True)
        while not stream.wait(0.02) and len(reports) < before + most:
            pass
        stream.stop()
        stream.close()
    assert {one.engine for report in reports for one in report.folded.values()} == {"duckdb", "spark"}
    by = [Lake(settings.model_copy(update={"engine": engine})) for engine in ("duckdb", "spark")]
    for one in (EUROS, PARTS):
        assert standing(lake, one) == given(one, records)
        said = [report.folded[one.name] for report in reports]
        assert sum(folded.productions for folded in said) == given(one, records).total()
        assert sum(folded.rejected for folded in said) == len(maps.step(one, records, 0)[1])
    for lake_of, one in zip(by, (PARTS, EUROS), strict=True):
        found = audit(lake_of, one)
        assert found.ok, [check for check in found.checks if not check.ok]
        [done] = backfill(lake_of, one, 0)
        assert (done.changed, done.retracted, done.untouched) == (0, 0, given(one, records).total())
    assert audit(by[0], SUMS).ok
    # The code of a step changes, and the first half is computed anew: on one engine, then all of it on the other.
    half = instant(START + timedelta(seconds=60))
    expected = given(PARTS, [one for one in records if instant(one["at"]) >= half])
    expected += given(MENDED, [one for one in records if instant(one["at"]) < half])
    assert MENDED.fingerprint == PARTS.fingerprint
    assert not audit(by[0], MENDED).ok
    [done] = backfill(by[0], MENDED, 0, half)
    assert done.changed > 0 < done.retracted
    assert standing(lake, PARTS) == expected
    [(_, [tried])] = backfill_stages(by[0], MENDED, 0, dry_run=True)
    [done] = backfill(by[1], MENDED, 0)
    assert done.changed == tried.changed > 0 < tried.retracted == done.retracted
    assert standing(lake, PARTS) == given(MENDED, records)
    found = audit(by[0], MENDED)
    assert found.ok, [check for check in found.checks if not check.ok]
    assert [run.status for run in Runs(lake, PARTS).all()][-2:] == ["committed", "committed"]
