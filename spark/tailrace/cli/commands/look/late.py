"""`tailrace late`: show ranges of records that came too late, and the backfills that would include these records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.corrections import backfill_commands, behind_data, tell_behind
from tailrace.cli.terminal.formats import bounds, not_streamed, quantity, span
from tailrace.cli.terminal.usage import UsageError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import text
from tailrace.model.definition.chain import chain
from tailrace.model.windows.windows import Window
from tailrace.plan.loader import load_ranged
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.lake.read.late_records import LateRange, LateReport

RANGES = 20
"""The maximum number of time ranges in the printed table; JSON output has all ranges."""


def late(definition: str, json: bool = False) -> None:
    """Show the records that came too late for their windows, by range of event time, and the backfills to run.

    A record that came too late is in the log, but no answer counts the record until a backfill of its range has run.
    Records that a backfill has already included are not shown. The report covers the definition, and every stage and
    join that the definition reads. For a join, the report shows the ranges of event time in which pairs may be missing.
    If a backfill has corrected an earlier stage, the report also names each stage that has not received the corrections
    yet. Reads the ledger, without Spark.
    """
    output, settings = Output(json), Settings()
    pipeline = load_ranged(definition)
    stages = [stage for stage in chain(pipeline) if stage.repairs_late]
    if not stages:
        raise UsageError(
            f"{definition}: {pipeline.name} is a {pipeline.kind_name}, and has no windows that a record could be too "
            "late for: expected a pipeline or a join"
        )
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.corrections.stages_behind import stages_behind
    from tailrace.lake.read.late_records import propose_backfills
    from tailrace.lake.read.late_report import late_report

    lake = Lake(settings)
    reports = [late_report(lake, stage) for stage in stages if lake.has(ledger_name(stage.name))]
    behind = stages_behind(lake, pipeline)
    if json:
        lacks = list(behind_data(definition, behind))
        output.data({"pipeline": pipeline.name, "stages": [_data(one) for one in reports], "behind": lacks})
        return
    if not reports:
        output.verbatim(f"{pipeline.name}: {not_streamed(settings, definition)}")
    output.blocks(map(_lines, reports))
    # Propose one backfill command per range. If the ranges are many or overlap, propose a single command that covers
    # all ranges.
    commands = backfill_commands(definition, propose_backfills([ready for report in reports for ready in report.ready]))
    if commands:
        output.text("", Text("to take them in:", style="dim"))
        output.verbatim(*commands)
    tell_behind(output, definition, behind)


def _lines(report: LateReport) -> Iterator[Any]:
    heading = quantity(report.records, "late record")
    heading += f", {report.repaired:,} of them taken in by backfills" if report.repaired else ""
    yield Text.assemble((report.pipeline.name, "bold"), f"  {heading}")
    if report.ranges:
        numbers = ("records", "windows" if report.pipeline.windowed else "spans", "epochs")
        more = f"the first {RANGES} of {len(report.ranges)} ranges; --json shows all"
        yield table(
            "range", *numbers, "behind", "closed", rows=map(partial(_row, report), report.ranges[:RANGES]),
            right=numbers, whole=("range", "behind"), caption=more if len(report.ranges) > RANGES else None,
        )  # fmt: skip


def _row(report: LateReport, group: LateRange) -> tuple[str | Text, ...]:
    first, last = group.first_epoch, group.last_epoch
    epochs = str(first) if first == last else f"{first}–{last}"
    wait = report.wait(group)
    closed = Text(f"in {span(wait / 1e6)}", style="yellow") if wait else Text("yes", style="green")
    counts = (f"{group.records:,}", f"{group.windows:,}", epochs)
    return bounds(Window(group.first, group.last)), *counts, span(group.behind / 1e6), closed


def _data(report: LateReport) -> dict[str, Any]:
    ranges = [
        {
            "range": [text(group.first), text(group.last)],
            **fields(group, "records", "windows"),
            "epochs": [group.first_epoch, group.last_epoch],
            **fields(group, "behind_seconds=behind"),
            "ready": report.wait(group) == 0,
        }
        for group in report.ranges
    ]
    counts = fields(report, "pipeline=pipeline.name", "records", "repaired", "closed_until=closed")
    return counts | {"ranges": ranges}
