"""The guided tour on two days of flights: what it tells is what is in the tables, and its page needs nothing else."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tailrace.cli.demo import tour as demo
from tailrace.cli.demo.demo_tables import DemoTables
from tailrace.cli.demo.story import Story
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.generate import flights
from tailrace.lake.catalog.lake import Lake
from tailrace.plan.loader import load
from tailrace.settings import Settings

SNOW = datetime(2013, 3, 8, tzinfo=UTC)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")
def test_the_demo_tells_shows_and_counts_what_happened(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    tour = demo.Tour(
        folder=tmp_path / "demo",
        first=date(2013, 3, 8),
        last=date(2013, 3, 10),
        fine=(SNOW + timedelta(hours=15), SNOW + timedelta(hours=20, minutes=30)),
        every=timedelta(minutes=30),
        corrected=(SNOW, SNOW + timedelta(days=1)),
    )
    demo.empty_folder(tour.folder)
    said = io.StringIO()
    console = Console(file=said, width=100)
    definition = demo.definition_in(tour.folder)
    pipeline = load(str(definition))
    status = demo.Demo(tour, settings, pipeline, Story(8, Output(out=console, news=console)), definition).run()

    assert status is ExitStatus.OK, said.getvalue()
    summary = json.loads((tour.folder / "summary.json").read_text())
    counts = ("records", "epochs", "panes", "retractions", "late", "backfill_changed", "backfill_untouched", "seconds")
    assert all(summary[name] > 0 for name in counts)
    assert summary["records"] == len(flights.load(tour.first, tour.last)) == 1805
    assert summary["audit_ok"] is True
    assert summary["duckdb_agrees"] is True

    panes = DemoTables(Lake(settings), pipeline).panes(demo.SHOWN)
    answers = [pane for pane in panes if not pane.retraction]
    assert [pane.timing for pane in answers if pane.timing != "early"] == ["on_time", *["late"] * 4, "correction"]
    assert [pane.values["flights"] for pane in answers][-6:] == [11, 13, 14, 15, 16, 20]
    taken = [pane.values["flights"] for pane in panes if pane.retraction]
    assert taken == [before.values["flights"] for before, _ in pairwise(answers)]

    told = re.findall(r"^ +\d\d:\d\d +\d\d:\d\d +(early|on time|late) +(\d+) ", said.getvalue(), re.MULTILINE)
    streamed = [(pane.timing.replace("_", " "), str(pane.values["flights"])) for pane in answers[:-1]]
    assert told == streamed

    opens = [line.strip() for line in said.getvalue().splitlines() if "tailrace serve" in line]
    assert len(opens) == 2, "while it streams, and at its end"
    assert opens[0].startswith("TAILRACE_WAREHOUSE=")

    page = (tour.folder / "flights.html").read_text()
    assert "<svg" in page
    assert not re.search(r"<(script|link|img|iframe)|src=|@import|url\((?!['\"]?#)", page)
