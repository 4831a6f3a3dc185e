"""The repair DAG: it proposes backfills for late records, waits for a person's approval, and runs the backfills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.airflow.airflow_names import AirflowSkipException
from tailrace.airflow.backfill_task import RangesOperator
from tailrace.airflow.form import BackfillRequest
from tailrace.airflow.ranges import Extent, Interval
from tailrace.airflow.tasks import ReportingOperator
from tailrace.model.base.time import text
from tailrace.model.definition.chain import chain
from tailrace.model.definition.pipeline import Pipeline
from tailrace.runners.jobs import LONGEST_REASON, RunnerError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tailrace.lake.read.late_records import LateReport

PROPOSE, APPROVE, REPAIR = "propose", "approve", "repair"
"""The names of the repair DAG's tasks."""

TABLE = "table"
"""The name of the XCom in which the task `propose` stores a Markdown table for the approval page."""

RANGES = "ranges"
"""The name of the XCom in which the task `propose` stores the ranges to backfill, for the task `repair` to read. The
ranges are ranges of window timestamps (last instants), in microseconds.
"""


class ProposeOperator(ReportingOperator):
    """Finds the late records in the ledger that no backfill has included in an answer.

    If there is nothing to repair, the other tasks of the DAG are skipped.
    """

    ui_color = "#fdf2d0"

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(subject=pipeline.name, **more)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.corrections.stages_behind import backfills_of, stages_behind
        from tailrace.lake.read.late_records import propose_backfills
        from tailrace.lake.read.late_report import late_report
        from tailrace.settings import Settings

        with self.reporting(context) as report:
            lake = Lake(Settings())
            reports = [late_report(lake, stage) for stage in chain(self.pipeline) if stage.repairs_late]
            behind = stages_behind(lake, self.pipeline)
            ready = [one for late in reports for one in late.ready]
            waiting = sum(len(late.ranges) for late in reports) - len(ready)
            report["said"] = f"{sum(one.records for one in ready):,} late records are in no answer"
            if waiting:
                report["said"] += f"; {waiting} more ranges wait for their windows to close"
        # The ranges of late records come first, because other stages may read the answers that these backfills repair.
        ranges = [*propose_backfills(ready), *backfills_of(behind)]
        if not ranges:
            raise AirflowSkipException("no record came too late for a closed window: there is nothing to repair")
        context["ti"].xcom_push(TABLE, make_table(reports, ranges, [one.said for one in behind if one.ready]))
        context["ti"].xcom_push(RANGES, [list(one) for one in ranges])


def make_table(reports: Sequence[LateReport], ranges: Sequence[Interval], behind: Sequence[str] = ()) -> str:
    """Format a Markdown table of the late records that can be repaired now, and a line with the proposed backfills.

    `behind` has one line for each stage that has not applied the corrections of earlier runs.
    """
    lines = ["| pipeline | windows from | to | late records | windows |", "|---|---|---|--:|--:|"]
    lines += [
        f"| {report.pipeline.name} | {text(one.first)} | {text(one.last)} | {one.records:,} | {one.windows:,} |"
        for report in reports
        for one in report.ready
    ]
    spans = " and ".join(f"{text(first)} to {text(last)}" for first, last in ranges)
    lines += ["", *(f"- {line}" for line in behind)] if behind else []
    return "\n".join([*lines, "", f"Approving backfills {spans}; equal results are left untouched."])


class RepairOperator(RangesOperator):
    """Backfills the proposed ranges after a person has approved them."""

    def find_ranges(self, context: Context, extent: Extent) -> tuple[BackfillRequest, list[Interval]]:
        pulled: Any = context["ti"].xcom_pull(task_ids=PROPOSE, key=RANGES)
        if not pulled:
            raise RunnerError("nothing was proposed: run the whole DAG again", again=False)
        answer: Any = context["ti"].xcom_pull(task_ids=APPROVE)
        return BackfillRequest(reason=_reason(answer)), [(int(first), int(last)) for first, last in pulled]


def _reason(answer: Mapping[str, Any] | None) -> str:
    who = ((answer or {}).get("responded_by_user") or {}).get("name") or "somebody"
    name = "".join(letter for letter in str(who) if letter.isprintable())
    return f"late records, approved by {name}"[:LONGEST_REASON]
