"""CloudWatch's filters read what streams and backfills say: each field is in a line that the code writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.fold.fold import EpochResult
from tailrace.ingest.row_landing import LandedCounts
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.events import Outcome, Publication, RunRecorded
from tailrace.lake.catalog.run import Run
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.step.progress import Partition, Progress
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.telemetry.log_lines import Logs
from tailrace.telemetry.run_events import CheckpointRepair, RunEnd, RunEvent, RunStart, Subject
from tests.support.lakes import small_lake
from tests.support.services.terraform import SOURCES

pytestmark = pytest.mark.system

FIELD = re.compile(r"\$\.(\w+)")
NOW, WATERMARK = instant(small_lake.at(14)), instant(small_lake.at(12))


@dataclass(frozen=True)
class Filter:
    """A metric filter as Terraform has it."""

    group: str
    pattern: str
    value: str

    @property
    def fields(self) -> set[str]:
        """What a line that it reads has to have; the dimension is in each."""
        return set(FIELD.findall(self.pattern)) | set(FIELD.findall(self.value)) | {"log"}

    def reads(self, line: Mapping[str, Any]) -> bool:
        """Whether the pattern fits a line: terms `$.name = "text"`, joined by && and ||."""
        inner = self.pattern.removeprefix("{").removesuffix("}")
        terms = re.sub(r'\$\.(\w+) = ("[^"]*")', lambda m: str(line.get(m[1]) == json.loads(m[2])), inner)
        words = terms.replace("&&", " and ").replace("||", " or ")
        assert re.fullmatch(r"(True|False|and|or|[\s()])+", words), f"{self.pattern} has more than this test knows"
        return bool(eval(words))

    def faults(self, lines: list[dict[str, Any]]) -> list[str]:
        """Why its metric would stay empty, as far as these lines say."""
        read = [line for line in lines if self.reads(line)]
        if not read:
            return [f"no line fits {self.pattern}"]
        found = [f"no field {name} in a line of {line['event']}" for line in read for name in self.fields - {*line}]
        name = self.value.removeprefix("$.")
        if name != self.value:
            found += [f"{name} is {line[name]!r}" for line in read if not isinstance(line.get(name, 0), int | float)]
        return found


def filters() -> dict[str, Filter]:
    """Those of the module, as its source has them."""
    text = (SOURCES / "modules" / "observability" / "logs.tf").read_text()
    shape = r'^ +(\w+) += \{ group = "(\w+)", pattern = "((?:[^"\\]|\\.)*)", value = "([^"]*)", unit = "\w+" \}$'
    found = {m[1]: Filter(m[2], json.loads(f'"{m[3]}"'), m[4]) for m in re.finditer(shape, text, re.MULTILINE)}
    assert len(found) == text.count("{ group ="), "a filter is written in a way that this test does not read"
    return found


def said(settings: Settings, folder: Path, command: Any, *happenings: RunEvent) -> list[dict[str, Any]]:
    """The lines of a run."""
    file = folder / f"{command}.json"
    logs = Logs(
        Subject(command, settings, small_lake.HOURLY.stages, {small_lake.HOURLY.log.name: Files("/landing")}),
        "json",
        file,
    )
    for happening in happenings:
        logs(happening)
    logs.close()
    return [json.loads(line) for line in file.read_text().splitlines()]


def epoch(**changes: Any) -> EpochReport:
    folded = EpochResult(
        3, 1, {"early": 4, "on_time": 2, "late": 1}, {"expired": 2, "finished": 0}, late=2,
        clock=Clock(0, WATERMARK, NOW), open=5, generation=1, token=4,
    )  # fmt: skip
    partitions = {"rides-0": Partition(WATERMARK, WATERMARK, NOW - 600_000_000), "rides-1": Partition(NOW, NOW, NOW)}
    progress = Progress(WATERMARK, partitions, {}, NOW, 3_600_000_000)
    whole = EpochReport(0, LandedCounts(100, 6, 9), {"hourly_rides": folded}, 0.5, {"step": 0.2}, progress=progress)
    return replace(whole, **changes)


@pytest.fixture
def lines(settings: Settings, tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything that a stream and backfills say, by the log group that it comes into."""
    run = Run("r1", "backfill", "started", 2, 0, 1, "f", 3)
    stream = said(
        settings, tmp_path, "stream", RunStart(), epoch(), CheckpointRepair("is lost"),
        Publication("hourly_rides__ledger", "stream", Outcome.MOVED), Publication("rides", "stream", Outcome.FENCED, 4),
        RunEnd(ValueError("no")),
    )  # fmt: skip
    ends = [
        RunRecorded("hourly_rides", replace(run, status=one)) for one in ("started", "committed", "gave_way", "failed")
    ]
    return {
        "stream": stream,
        "backfill": said(settings, tmp_path, "backfill", RunStart(), *ends, RunEnd(ValueError("no"))),
    }


@pytest.mark.parametrize("name", filters())
def test_a_filter_reads_lines_that_there_are_and_fields_that_they_have(
    name: str, lines: dict[str, list[dict[str, Any]]]
) -> None:
    one = filters()[name]
    assert one.faults(lines[one.group]) == []


def test_a_filter_on_what_no_line_has_is_found_out(lines: dict[str, list[dict[str, Any]]]) -> None:
    wrong = [
        Filter("stream", '{ $.event = "epoch_done" }', "1"),
        Filter("stream", '{ $.event = "epoch" }', "$.lag"),
        Filter("stream", '{ $.event = "epoch" && $.kind = "x" }', "1"),
        Filter("stream", '{ $.event = "began" }', "$.pipelines"),
    ]
    assert [one.faults(lines["stream"])[0] for one in wrong] == [
        'no line fits { $.event = "epoch_done" }',
        "no field lag in a line of epoch",
        'no line fits { $.event = "epoch" && $.kind = "x" }',
        "pipelines is ['hourly_rides']",
    ]


def test_a_line_says_how_far_the_stage_is_behind_that_is_furthest(settings: Settings, tmp_path: Path) -> None:
    folded = epoch().folded["hourly_rides"]

    def lag(*watermarks: int) -> Any:
        stages = {f"s{n}": replace(folded, clock=Clock(0, at, NOW)) for n, at in enumerate(watermarks)}
        (tmp_path / "stream.json").unlink(missing_ok=True)
        return said(settings, tmp_path, "stream", epoch(folded=stages, progress=None))[0].get("watermark_lag_seconds")

    assert lag(NOW, WATERMARK) == 7200
    assert lag(END_OF_TIME) == 0
    # A stage that has no watermark yet lags behind nothing.
    assert lag(BEGINNING) is None
    assert lag(BEGINNING, NOW) == 0
