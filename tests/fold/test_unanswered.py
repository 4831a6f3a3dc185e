"""A result that left its type is counted and shown with why wherever answers are, on both engines (rule X7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace import ACCUMULATING, AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, Sum, hours
from tailrace.backfill.backfill import backfill
from tailrace.cli.main import app
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.stream_progress import StreamProgress
from tailrace.fold.fold import EpochResult
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.ingest.row_landing import LandedCounts
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.status import status
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.definition.pipeline import UNANSWERED
from tailrace.operate.answers_repair import repair_answers
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.lakes.recorded_ledgers import record
from tests.support.processes.serving import Seen, visited

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST = 2**63 - 1
WHY = f"total: {MOST + 1} is out of bigint: declare n decimal(19,0)"

DEFINITION = "tests/fold/test_unanswered.py:TOTALS"
TOTALS = Pipeline(
    name="totals",
    log=Log(name="events", columns={"at": "timestamp", "k": "string", "n": "bigint"}, event_time="at"),
    key="k",
    what={"total": Sum("n"), "records": Count()},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=AfterCount(1)),
    how=ACCUMULATING,
)

EPOCHS = [[("a", MOST), ("b", 5)], [("a", 1)], []]
"""The total of key a leaves its type with the second epoch, and is given at the watermark once more."""

ENGINES = ["duckdb", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(params=ENGINES)
def lake(
    request: pytest.FixtureRequest, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> tuple[Lake, list[EpochResult]]:
    """A lake of these epochs as an engine folds them, and what it said of each."""
    spark: SparkSession | None = request.getfixturevalue("plain") if request.param == "spark" else None
    made = Lake(settings.model_copy(update={"engine": request.param}))
    said: list[EpochResult] = []
    stage: Callable[..., EpochResult] = PipelineFold.stage

    def kept(fold: PipelineFold, *given: Any) -> EpochResult:
        said.append(stage(fold, *given))
        return said[-1]

    monkeypatch.setattr(PipelineFold, "stage", kept)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("COLUMNS", "200")
    start = instant(START)
    epochs = []
    for number, some in enumerate(EPOCHS):
        rows = [{"at": START + timedelta(minutes=number), "k": key, "n": n} for key, n in some]
        epochs.append((rows, Clock(number, start if some else END_OF_TIME, start + number)))
    record(made, TOTALS, epochs, spark)
    return made, said


def run(*args: str) -> str:
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_X7_results_that_left_their_type_are_counted_and_shown_with_why(
    lake: tuple[Lake, list[EpochResult]], capsys: pytest.CaptureFixture[str]
) -> None:
    made, said = lake
    assert [one.unanswered for one in said] == [0, 1, 1]
    own = status(made, TOTALS).own
    assert own is not None
    assert own.answers is not None
    assert (own.answers.unanswered, own.answers.unanswered_why) == (1, WHY)
    assert f"unanswered    1  {WHY}" in run("status", DEFINITION).splitlines()
    data = json.loads(run("status", DEFINITION, "--json"))
    assert (data["unanswered"], data["unanswered_why"]) == (1, WHY)
    history = run("panes", DEFINITION, "--key", "a")
    assert "unanswered" in history
    assert WHY in history
    assert "unanswered" not in run("panes", DEFINITION, "--key", "b")
    at = "2026-01-01T00:30:00Z"
    assert WHY in run("trace", DEFINITION, "--key", "a", "--window", at)
    assert "unanswered" not in run("trace", DEFINITION, "--key", "b", "--window", at)
    assert WHY in " ".join(run("trace", DEFINITION, "--where", "n = 1").split())
    assert WHY in run("replay", DEFINITION, "--as-of", "1", "--keep", "as_of_one")
    assert sorted(map(str, made.table("as_of_one").scan().to_arrow()[UNANSWERED].to_pylist())) == ["None", WHY]
    report = EpochReport(1, LandedCounts(1, 0), {"totals": said[1]}, 0.1, {})
    for json_, expected in ((True, '"unanswered": 1'), (False, "1 unanswered")):
        StreamProgress(Output(json=json_)).show_epoch(report)
        captured = capsys.readouterr()
        assert expected in captured.out + captured.err


def test_X7_the_page_shows_what_left_its_type_with_why(lake: tuple[Lake, list[EpochResult]]) -> None:
    with visited(lake[0], TOTALS) as client:
        assert f"unanswered 1 {WHY}" in Seen(client.get("/").text).text
        page = client.get("/stages/totals?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z").text
        assert WHY in Seen(page).text
        stories = [Seen(client.get(link).text).text for link in Seen(page).links if "/window?" in link]
    assert sorted(story.count(WHY) for story in stories) == [0, 3]


def test_X7_what_left_its_type_audits_replays_and_is_left_alone_by_a_backfill(
    lake: tuple[Lake, list[EpochResult]],
) -> None:
    made, _ = lake
    assert audit(made, TOTALS).ok
    assert replay(made, TOTALS).ok
    before = made.table("totals").scan().to_arrow().sort_by("k")
    assert before[UNANSWERED].to_pylist() == [WHY, None]
    for dry in (True, False):
        (done,) = backfill(made, TOTALS, instant(START), instant(START + timedelta(hours=1)), dry_run=dry)
        assert (done.changed, done.untouched, done.retracted) == (0, 2, 0)
    assert made.table("totals").scan().to_arrow().sort_by("k") == before
    assert not repair_answers(made, TOTALS).written
    with pytest.warns(UserWarning, match="copy-on-write"):
        made.table("totals").delete("k = 'a'")
    assert repair_answers(made, TOTALS).written
    assert made.table("totals").scan().to_arrow().sort_by("k") == before


def test_X7_a_simulation_shows_what_leaves_its_type_in_its_table_and_its_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    rows = [{"at": f"2026-01-01T00:0{minute}:00Z", "k": "a", "n": n} for minute, n in enumerate((MOST, 1))]
    sample = tmp_path / "sample.jsonl"
    sample.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shown = run("simulate", DEFINITION, str(sample), "--html", str(tmp_path / "page.html"))
    assert WHY in shown
    assert WHY in (tmp_path / "page.html").read_text()
