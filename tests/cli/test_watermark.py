"""`watermark` says which partitions hold a log back, and takes the word of who knows, without a JVM (rule T3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import PROGRESS
from tailrace.lake.commit.signal_tables import Completions
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.step.progress import Partition, Progress
from tailrace.settings import Settings
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import RIDES, append, at

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

PROGRESSED = Progress(
    instant(at(11)),
    {
        "rides-0": Partition(instant(at(12)), instant(at(13)), instant(at(14))),
        "rides-1": Partition(instant(at(11)), instant(at(12)), instant(at(13, 57))),
        "rides-2": Partition(BEGINNING, None, instant(at(13))),
    },
    {},
    instant(at(14)),
    5 * 60_000_000,
)


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    return Lake(settings)


@pytest.fixture
def definition(tmp_path: Path) -> str:
    file = tmp_path / "rides.py"
    file.write_text(small_lake.DEFINITION)
    return str(file)


def run(*args: str) -> str:
    # As narrow as a terminal usually is.
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, args)
    assert result.exit_code == 0, result.output
    return result.stdout


def progressed(settings: Settings, progress: Progress) -> None:
    small_lake.make(settings)
    append(Lake(settings), RIDES.name, [], {"epoch": "2", PROGRESS: progress.text()})


def test_it_shows_which_partition_holds_the_watermark(lake: Lake, settings: Settings, definition: str) -> None:
    progressed(settings, PROGRESSED)
    lines = [" ".join(line.split()) for line in run("watermark", definition).splitlines()]
    assert lines[:2] == [
        "log rides watermark 2026-01-01T11:00Z",
        "each partition by BoundedDisorder(hours(1)); the least counts",
    ]
    assert lines[-3:] == [
        "rides-2 beginning – 1 h – idle",
        "rides-1 2026-01-01T11:00Z 2026-01-01T12:00Z 3 min 1 h holds back",
        "rides-0 2026-01-01T12:00Z 2026-01-01T13:00Z 0 s 0 s waited for",
    ]
    found: dict[str, Any] = json.loads(run("watermark", definition, "--json"))
    assert (found["watermark"], found["held_by"]) == ("2026-01-01T11:00:00Z", ["rides-1"])
    assert found["partitions"]["rides-2"] == {
        "watermark": "beginning", "latest_event": None, "last_new": "2026-01-01T13:00:00Z", "idle": True,
    }  # fmt: skip


def test_status_says_what_holds_the_watermark_back(lake: Lake, settings: Settings, definition: str) -> None:
    progressed(settings, PROGRESSED)
    lines = [" ".join(line.split()) for line in run("status", definition).splitlines()]
    assert "held back by rides-1 of 3 partitions, 1 idle: tailrace watermark shows each" in lines
    assert json.loads(run("status", definition, "--json"))["logs"][0]["held_by"] == ["rides-1"]


def test_status_says_how_many_records_came_again_and_how_many_values_were_rounded(
    lake: Lake, settings: Settings, definition: str
) -> None:
    small_lake.make(settings)
    append(lake, RIDES.name, [], {"epoch": "2", "duplicates": "1234", "rounded": "1"})
    lines = [" ".join(line.split()) for line in run("status", definition).splitlines()]
    assert any("2 records, 0 rejected, 1,234 duplicates, 1 rounded value" in line for line in lines)
    (log,) = json.loads(run("status", definition, "--json"))["logs"]
    assert (log["duplicates"], log["rounded"]) == (1234, 1)


def test_of_many_partitions_the_furthest_behind_are_shown(lake: Lake, settings: Settings, definition: str) -> None:
    partitions = {f"rides-{n:02}": Partition(instant(at(11, n)), None, 0) for n in range(50)}
    progressed(settings, Progress(instant(at(11)), partitions))
    shown = run("watermark", definition)
    assert "rides-39" in shown
    assert "rides-40" not in shown
    assert "the 40 furthest behind of 50; --json shows all" in shown
    assert len(json.loads(run("watermark", definition, "--json"))["partitions"]) == 50


def test_before_the_first_epoch_it_says_so(lake: Lake, settings: Settings, definition: str) -> None:
    assert "no stream has run yet" in run("watermark", definition)
    assert json.loads(run("watermark", definition, "--json"))["started"] is False
    small_lake.make(settings)
    assert "no stream has run yet" in run("watermark", definition)


def test_who_knows_says_until_when_the_input_is_complete(lake: Lake, definition: str) -> None:
    args = ("watermark", definition, "--until")
    assert run(*args, "2026-01-02", "--note", "all in") == ("said that log rides is complete until 2026-01-02T00:00Z\n")
    of_one = run(*args, "2026-01-01T10:00", "--partition", "rides-1")
    assert of_one == "said that partition rides-1 of log rides is complete until 2026-01-01T10:00Z\n"
    said = json.loads(run(*args, "2026-01-01T11:00Z", "--partition", "rides-1", "--json"))
    assert said["table"] == "rides__complete"
    completions = Completions(lake, RIDES)
    found, seen = completions.new_times({})
    assert found == {None: instant(at(0)) + 86_400_000_000, "rides-1": instant(at(11))}
    # A commit says what it has seen, so each row comes with one epoch.
    assert completions.new_times(seen) == ({}, seen)
    run(*args, "2026-01-03")
    assert list(completions.new_times(seen)[0]) == [None]


def test_what_cannot_be_meant_is_refused(lake: Lake, definition: str) -> None:
    for args, message in (
        (("--partition", "rides-1"), "--partition and --note belong to --until"),
        (("--until", "noon"), "--until 'noon': expected a date or an instant"),
    ):
        result = CliRunner().invoke(app, ["watermark", definition, *args])
        assert result.exit_code == 2
        assert message in result.output.replace("\n", " ")


def test_status_and_plan_say_where_a_log_began_in_its_topics(lake: Lake, settings: Settings, definition: str) -> None:
    small_lake.make(settings)
    began = {"start": "latest", "offsets": {"rides": {str(part): 17 + part for part in range(9)}}}
    append(lake, RIDES.name, [], {"epoch": "2", "began": json.dumps(began)})
    places = "rides-0 at 17, rides-1 at 18"
    shown = " ".join(run("status", definition).split())
    assert f"began at latest: {places}" in shown
    assert "rides-7 at 24 and 1 more; messages before are in no result" in shown
    (log,) = json.loads(run("status", definition, "--json"))["logs"]
    assert log["began"].startswith(f"latest: {places}")
    change = "from dataclasses import replace\nHOURLY = replace(HOURLY, how=DISCARDING)\n"
    Path(definition).write_text(f"from tailrace import DISCARDING\n{small_lake.DEFINITION}{change}")
    assert f"not the messages before the start of log rides, latest: {places}" in " ".join(
        run("plan", definition).split()
    )
