"""A log gets columns between two streams: definitions go on, and give what a fresh stream gives."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import Col, Derive, Log, Map, Max, Pipeline, Sum
from tailrace.backfill.backfill import backfill
from tailrace.fold.streamed_definitions import StreamError, landed_logs
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import evolve
from tailrace.lake.schema.lake_errors import FormerShapeError
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.lakes.rides import HOURLY, RIDES, Case

WIDE = replace(RIDES, columns={**RIDES.columns, "tip": "bigint", "city": "string"})
NARROW = replace(HOURLY, name="narrow", what={**HOURLY.what, "most": Max("cents")})
TIPS = replace(HOURLY, name="tips", log=WIDE, what={"tip": Sum("tip"), "most": Max("cents")})
DERIVED = replace(HOURLY, name="derived", each=Derive({"tip": Col("cents") * 2}), what={"twice": Sum("tip")})
"""It makes a column that the wide log has, too: it is not to find that one."""


class Growing(Case):
    """Rides with columns that a test chooses."""

    def ride(self, *rides: dict[str, Any]) -> None:
        rows = [{"who": "a", "cents": 1, "seen": ride["day"]} | ride for ride in rides]
        file = self.folder / f"{self.landed:03}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + self.landed, 1_700_000_000 + self.landed))
        self.landed += 1

    def drained(self, *definitions: Definition) -> None:
        self.drain(*definitions)  # type: ignore[arg-type]

    def holds(self, *definitions: Pipeline) -> None:
        for one in definitions:
            found = audit(self.lake, one)
            assert found.ok, [check for check in found.checks if not check.ok]
            assert replay(self.lake, one).ok
            assert not [run for run in backfill(self.lake, one, BEGINNING) if run.changed]
            assert self.lake.head(f"{one.name}__ledger").number("generation") <= 2


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    found = lake.table(name).scan().to_arrow().to_pylist()
    own = [n for n in found[0] if n in {"who", "window_start", "n", "cents", "tip", "most", "twice"}]
    return sorted(tuple(row[n] for n in own) for row in found)


def day(hour: int, minute: int = 0) -> str:
    return f"2026-01-01T{hour:02}:{minute:02}:00Z"


@pytest.mark.parametrize(("grows", "engine"), [(False, "duckdb"), (True, "spark")])
def test_V6_a_stream_goes_on_when_its_log_grows_and_the_answers_are_those_of_a_fresh_one(
    plain: SparkSession, settings: Settings, tmp_path: Path, grows: bool, engine: str
) -> None:
    case = Growing(plain, settings.model_copy(update={"engine": engine}), tmp_path / "landing")
    case.ride({"day": day(8)}, {"day": day(8, 30), "who": "b"})
    case.ride({"day": day(9), "cents": 5})
    # The log's amounts are narrower at first, too.
    case.drained(*(replace(one, log=typed(cents="int")) for one in (NARROW, DERIVED)))
    case.ride({"day": day(9, 10), "tip": 3, "city": "x"}, {"day": day(10), "tip": 4})
    wide = replace(TIPS, log=replace(WIDE, grows=grows))
    if not grows:
        with pytest.raises(FormerShapeError, match=r"add column tip \(bigint\).*tailrace tables apply"):
            case.drained(NARROW, wide)
        evolve(case.lake, wide)
    case.drained(NARROW, DERIVED, wide)
    case.ride({"day": day(13)}, {"day": day(9, 20), "cents": 2**40})
    # The stream of the wide log goes on with definitions that declare it, and with those that do not.
    case.drained(replace(NARROW, log=wide.log), DERIVED, wide)
    case.holds(NARROW, DERIVED, wide)
    landed = case.lake.table("rides").scan().to_arrow().to_pylist()
    assert sorted((row["tip"] or 0, row["city"] or "") for row in landed) == [*[(0, "")] * 5, (3, "x"), (4, "")]

    fresh = Growing(plain, case.lake.settings.model_copy(update={"namespace": "fresh"}), tmp_path / "again")
    for file in sorted(case.folder.glob("*.json")):
        os.link(file, fresh.folder / file.name)
    fresh.drained(NARROW, DERIVED, wide)
    for one in (NARROW, DERIVED, wide):
        assert rows(case.lake, one.name) == rows(fresh.lake, one.name)


def test_definitions_of_two_widths_share_a_log_and_those_that_contradict_each_other_are_named() -> None:
    (log,) = landed_logs([NARROW, TIPS, Map(name="all", log=replace(RIDES, columns={**RIDES.columns, "more": "int"}))])
    assert {*log.columns} == {*WIDE.columns, "more"}
    (placed,) = landed_logs([NARROW, replace(TIPS, log=replace(WIDE, fields={"tip": "fare.tip"}, required=("tip",)))])
    assert (dict(placed.fields), placed.required) == ({"tip": "fare.tip"}, ("tip",))
    with pytest.raises(StreamError, match=r"narrow and other .* rides .* cents is bigint in narrow, int in other"):
        landed_logs([NARROW, replace(NARROW, name="other", log=typed(cents="int"))])
    seconds = {"day": "seconds"}
    (timed,) = landed_logs(
        [replace(NARROW, log=replace(RIDES, instants=seconds)), replace(TIPS, log=replace(WIDE, instants=seconds))]
    )
    assert timed.instants == seconds
    by_all, by_one = replace(RIDES, instants="seconds"), replace(WIDE, instants=seconds)
    with pytest.raises(StreamError, match=r"instants is 'seconds' in narrow, .*'day': 'seconds'.* in tips"):
        landed_logs([replace(NARROW, log=by_all), replace(TIPS, log=by_one)])
    with pytest.raises(StreamError, match=r"required is .* in narrow, .* in other"):
        landed_logs([NARROW, replace(NARROW, name="other", log=replace(RIDES, required=("cents",)))])


def typed(**types: str) -> Log:
    return replace(RIDES, columns={**RIDES.columns, **types})
