"""Run the guided tour, `tailrace demo`: three months of flights as a stream, late data, a backfill, an audit, a plot.

The tour uses only features that every user has: a definition in a file, a stream of files, a backfill, and an audit.
Every number that the tour prints is read from the tables.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tailrace
from tailrace.cli.demo.backfill_part import CorrectedAnswers, show_backfill
from tailrace.cli.demo.demo_tables import DemoTables, Span
from tailrace.cli.demo.story import Story
from tailrace.cli.demo.stream_part import StreamPart
from tailrace.cli.demo.tour_page import answers_table, audit_table, cards, changes_table, panes_table, picture
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import quantity, span
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.engines.duckdb.iceberg_query import by_duckdb
from tailrace.generate.flights import landing_cuts, load, write_files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import QueryError
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.definition.pipeline import Pipeline
from tailrace.plan.loader import load as load_definition
from tailrace.plots.plot_page import render
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields
from tailrace.verify.audit import audit
from tailrace.verify.tampering.audit_result import Audit

MARK = ".tailrace-demo"
"""The name of a file that marks a folder as created by the demo. The demo never empties a folder that lacks this
file.
"""

SHOWN = Span("EWR", datetime(2013, 3, 8, 15, tzinfo=UTC), datetime(2013, 3, 8, 16, tzinfo=UTC))
"""The window whose panes are printed as they fire."""

WIDE = Span("EWR", datetime(2013, 3, 8, 13, tzinfo=UTC), datetime(2013, 3, 8, 20, tzinfo=UTC))
"""The windows that the plot shows."""


@dataclass(frozen=True)
class Tour:
    """The days of flights in the demo, the times at which the demo's files end, and the range of the demo's backfill.

    Each file becomes one epoch. A file covers at most one day. In the range `fine`, a file covers 15 minutes (`every`).
    The range `fine` contains the windows that the demo shows.
    """

    folder: Path = Path("build/demo")
    first: date = date(2013, 1, 1)
    last: date = date(2013, 4, 1)
    fine: tuple[datetime, datetime] = (datetime(2013, 3, 8, 12, tzinfo=UTC), datetime(2013, 3, 9, tzinfo=UTC))
    every: timedelta = timedelta(minutes=15)
    corrected: tuple[datetime, datetime] = (datetime(2013, 3, 1, tzinfo=UTC), datetime(2013, 3, 30, tzinfo=UTC))

    @property
    def cuts(self) -> list[datetime]:
        """The instants at which the files end, in order. A file contains the records that became known after the end of
        the preceding file and before its own end.
        """
        low, high = self.fine
        fine = {low + self.every * number for number in range((high - low) // self.every + 1)}
        return sorted(fine.union(landing_cuts(self.first, self.last)))

    @property
    def landing(self) -> Path:
        """The folder to which the demo writes the files of flights."""
        return self.folder / "landing"


@dataclass
class Demo:
    """A run of the tour. Each step adds its results to `summary`."""

    tour: Tour
    settings: Settings
    pipeline: Pipeline
    story: Story
    definition: Path
    summary: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lake = Lake(self.settings)
        self.tables = DemoTables(self.lake, self.pipeline)
        self.started = time.perf_counter()

    def run(self) -> ExitStatus:
        """Run the whole tour and return its exit status. The caller stops the Spark session."""
        self.story.tell("begin")
        with self.story.step("definition", "One definition"):
            self._definition()
        with self.story.step("files", "Real records, in the order in which they became known"):
            self._land()
        with self.story.step("stream", "The stream: every file is an epoch"):
            spark = self._stream()
        with self.story.step("late", "Too late, but not lost"):
            self._late()
        with self.story.step("backfill", "The backfill: the same definition over what the log holds now"):
            corrected = self._backfill()
        with self.story.step("sql", "The answer, by SQL"):
            query, rows = self._sql(spark)
        with self.story.step("audit", "The audit: is every record accounted for?"):
            audited = self._audit()
        with self.story.step("page", "The picture"):
            self._page(corrected, query, rows, audited)
        return self._end()

    @property
    def _serve(self) -> str:
        """The shell command that shows the lake in a browser."""
        return f"{_command()} serve {_short(self.definition)}"

    def _definition(self) -> None:
        text = self.definition.read_text()
        code = text[text.index(f"{self.pipeline.name} =") :].strip()
        self.story.code(code, "python")
        self.story.tell("definition")

    def _land(self) -> None:
        records = load(self.tour.first, self.tour.last)
        files = write_files(records, self.tour.landing, self.tour.cuts)
        waits = records["known"] - records["scheduled"]
        most = waits.max().to_pytimedelta()
        late = int((waits > timedelta(hours=1)).sum())
        low, high = self.tour.fine
        tour, last = self.tour, self.tour.last - timedelta(days=1)
        self.story.tell("records", records=len(records), tour=tour, last=last, late=late, most=span(most))
        count, every = quantity(len(files), "file"), span(tour.every)
        self.story.tell("files", files=count, tour=tour, every=every, low=low, high=high)

    def _stream(self) -> SparkSession:
        self.story.tell("epochs")
        self.story.tell("window", shown=SHOWN)
        self.story.tell("browser")
        self.story.line((f"TAILRACE_WAREHOUSE={_short(self.tour.folder / 'lake')} {self._serve}", "cyan"))
        part = StreamPart(self.story, self.settings, self.tables, SHOWN)
        spark = part.run(str(self.tour.landing))
        self.summary |= fields(part.progress.tally, "records", "rejected", "epochs", "panes", "retractions", "late")
        self.summary["stream_seconds"] = round(part.seconds, 1)
        self.summary["stream_phases"] = {name: round(seconds, 1) for name, seconds in part.phases.items()}
        return spark

    def _late(self) -> None:
        closed = SHOWN.last + timedelta(microseconds=self.pipeline.lateness)
        missed = [flight for flight in self.tables.flights(SHOWN) if flight.late]
        self.story.tell("late", closed=closed, missed=quantity(len(missed), "flight"))
        rows = (
            (one.id, f"{one.scheduled:%H:%M}", f"{one.known:%H:%M}",
             "cancelled" if one.delay is None else f"{one.delay} min")
            for one in missed
        )  # fmt: skip
        self.story.show(table("flight", "scheduled", "known", "delay", rows=rows, right=["delay"]))
        self.story.tell("all_late", late=quantity(self.summary["late"], "flight"))

    def _backfill(self) -> CorrectedAnswers:
        first, last = self.tour.corrected
        self.story.tell("backfill", first=first, last=last - timedelta(days=1))
        corrected = CorrectedAnswers.run(self.tables, first, last)
        show_backfill(self.story, corrected, self.tables, WIDE, SHOWN)
        self.summary |= corrected.summary
        return corrected

    def _sql(self, spark: SparkSession) -> tuple[str, list[dict[str, Any]]]:
        query = (
            "SELECT window_start, flights, departures, ROUND(mean_delay, 1) AS mean_delay, timing\n"
            f"FROM {self.pipeline.name}\n"
            f"WHERE origin = '{WIDE.origin}' AND window_start >= TIMESTAMP '{WIDE.first:%Y-%m-%d %H:%M:%S}'\n"
            f"  AND window_start < TIMESTAMP '{WIDE.last:%Y-%m-%d %H:%M:%S}'\n"
            "ORDER BY window_start"
        )
        rows: list[dict[str, Any]] = spark.sql(query).toArrow().to_pylist()
        self.story.code(query, "sql")
        cells = ([f"{v:%Y-%m-%d %H:%M}" if isinstance(v, datetime) else str(v) for v in row.values()] for row in rows)
        self.story.show(table(*rows[0], rows=cells, right=["flights", "departures", "mean_delay"]))
        other = self._by_duckdb(query)
        comparison = "no_duckdb" if other is None else "same_rows" if other == rows else "other_rows"
        self.story.tell(comparison, other=other)
        self.summary["duckdb_agrees"] = None if other is None else other == rows
        return query, rows

    def _by_duckdb(self, query: str) -> list[dict[str, Any]] | None:
        """Run a query over the answers with DuckDB, which reads the files of the lake's tables.

        Returns None if DuckDB's extensions are missing.
        """
        try:
            return list(by_duckdb(self.lake, query).to_pylist())
        except QueryError:
            raise
        except LakeError:
            return None

    def _audit(self) -> Audit:
        self.story.tell("audit")
        audited = audit(self.lake, self.pipeline)
        for check in audited.checks:
            mark = ("holds  ", "green") if check.ok else ("FAILS  ", "bold red")
            self.story.line(mark, check.name, (f"  {check.detail}", "dim"))
        self.summary["audit_ok"] = audited.ok
        return audited

    def _page(self, corrected: CorrectedAnswers, query: str, rows: Sequence[dict[str, Any]], audited: Audit) -> None:
        self.summary["seconds"] = round(time.perf_counter() - self.started, 1)
        plot = picture(self.tables, WIDE)
        page_tables = [panes_table(self.tables, SHOWN), changes_table(corrected.old, corrected.new)]
        page_tables += [answers_table(query, rows), audit_table(audited)]
        page = self.tour.folder / "flights.html"
        page.write_text(render(replace(plot, facts=cards(self.summary), tables=page_tables)), encoding="utf-8")
        self.story.tell("page", page=page)

    def _end(self) -> ExitStatus:
        file = self.tour.folder / "summary.json"
        self.summary |= {
            "seconds": round(time.perf_counter() - self.started, 1),
            "steps": self.story.seconds,
            "page": str(self.tour.folder / "flights.html"),
        }
        file.write_text(json.dumps(self.summary, indent=2) + "\n")
        self.story.console.print()
        self.story.tell("end", took=span(self.summary["seconds"]), file=file)
        self.story.line((f"export TAILRACE_WAREHOUSE={_short(self.tour.folder / 'lake')}", "cyan"))
        command, file_ = _command(), _short(self.definition)
        self.story.line((self._serve, "cyan"), ("  shows it in a browser", "dim"))
        window = f"--key {SHOWN.origin} --window {SHOWN.first:%Y-%m-%dT%H:%MZ}"
        for rest in (f"status {file_}", f"panes {file_} {window}", f"explain {file_}", f"audit {file_}"):
            self.story.line((f"{command} {rest}", "cyan"))
        held = self.summary["audit_ok"] and self.summary["only_the_backfill_changed_rows"]
        held = held and self.summary["duckdb_agrees"] is not False
        return ExitStatus.OK if held else ExitStatus.FOUND


def definition_in(folder: Path) -> Path:
    """Return the file of the demo's definition: in a checkout its `pipelines/flights.py`, else a copy in the folder."""
    package = Path(tailrace.__file__).parent
    there = package.parents[1] / "pipelines" / "flights.py"
    if there.is_file():
        return there
    return Path(shutil.copyfile(package / "cli" / "demo" / "definition" / "flights.py", folder / "flights.py"))


def empty_folder(folder: Path) -> None:
    """Create the folder, or empty it if it exists.

    Raises `UsageError` if the folder has files that the demo did not make.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UsageError(f"{folder} is not empty and no earlier demo's: pass another with --folder, or remove it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).write_text("`tailrace demo` made this folder, and removes it when it runs again\n")


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.resolve().relative_to(here)) if path.resolve().is_relative_to(here) else str(path)


def _command() -> str:
    """Return the command `tailrace` as one types it in the working directory."""
    inside = Path(".venv/bin/tailrace")
    return str(inside) if inside.is_file() and Path(sys.prefix) == Path(".venv").absolute() else "tailrace"


def take(tour: Tour, output: Output) -> ExitStatus:
    """Take the tour in its folder, which is emptied first, and return the exit status.

    Raises `UsageError` if the folder has files that the demo did not make.
    """
    story = Story(8, output)
    empty_folder(tour.folder)
    definition = definition_in(tour.folder)
    settings = Settings(warehouse=tour.folder / "lake", catalog_uri="")
    try:
        return Demo(tour, settings, load_definition(str(definition)), story, definition).run()
    except KeyboardInterrupt:
        output.error(f"interrupted; what there is so far is in {tour.folder}")
        return ExitStatus.INTERRUPTED
    finally:
        if session := SparkSession.getActiveSession():
            session.stop()
