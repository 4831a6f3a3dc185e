"""Check the parameters, run the backfill, and report the result: the single task of a backfill DAG."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import AssetAlias

from tailrace.airflow.form import BackfillRequest
from tailrace.airflow.ranges import Extent, Interval, choose_range, cut_range
from tailrace.airflow.tasks import HAS_PARTITION_KEYS, RunnerOperator, asset_of, days_asset_of
from tailrace.airflow.timetable import ByHand
from tailrace.airflow.web.report import COUNTED
from tailrace.model.base.time import instant, text
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Ranged
from tailrace.runners.jobs import BackfillJob, JobOutcome, RunnerError

if TYPE_CHECKING:
    from airflow.sdk import Context


MOST_DAYS = 366
"""The maximum number of days that a task tells as events of their own.

A task tells all its events in a single request, which Airflow sends again after five seconds (its setting
`workers.execution_api_timeout`), and then all events are there twice. A thousand events take about three seconds.
"""


class RangesOperator(RunnerOperator):
    """Backfills ranges of a definition. `definition` is `FILE` or `FILE:NAME`, with an absolute path.

    If the backfill changed any answers of a stage, the task emits an event of the Airflow asset that represents these
    answers. The event has the days of the changed answers in `timezone`. Where Airflow has partition keys, each day is
    also an event of the asset `days_asset_of` of the stage, with the day as its key, unless there are more than
    `MOST_DAYS`; the task's report then says so.
    """

    ui_color = "#dbe9f6"

    def __init__(self, *, definition: str, pipeline: Ranged, timezone: str = "UTC", **more: Any) -> None:
        self.alias = AssetAlias(f"{pipeline.name} backfilled")
        stages = [one.name for one in chain(pipeline) if one.recomputable]
        days = [days_asset_of(name) for name in stages] if HAS_PARTITION_KEYS else []
        super().__init__(subject=pipeline.name, outlets=[self.alias, *days], **more)
        self.definition, self.pipeline, self.timezone = definition, pipeline, timezone

    @abstractmethod
    def find_ranges(self, context: Context, extent: Extent) -> tuple[BackfillRequest, list[Interval]]:
        """Return the request for the run, and the ranges into which the requested range is divided."""

    def execute(self, context: Context) -> None:
        with self.reporting(context) as report:
            jobs = self._make_jobs(context, report)
            dry_run = jobs[0].dry_run
            runner = self.start_runner()
            with ThreadPoolExecutor(len(jobs)) as pool:
                running = [pool.submit(runner.backfill, job, self.log_progress) for job in jobs]
                outcomes = [outcome for future in running for outcome in future.result()]
            report |= summarize(outcomes, dry_run=dry_run) | ({} if dry_run else self._report_behind())
            changes = [] if dry_run else [*self._changes(outcomes, context)]
            keyed = {stage for stage, _, days in changes if HAS_PARTITION_KEYS and 0 < len(days) <= MOST_DAYS}
            report["said"] += "".join(
                f"; {len(days):,} days of {stage} changed, too many for an event of each day"
                for stage, _, days in changes
                if HAS_PARTITION_KEYS and len(days) > MOST_DAYS
            )
        # Airflow emits an event of each asset among the outlets, so the assets of days without changes are left out.
        self.outlets = [self.alias]
        for stage, runs, days in changes:
            context["outlet_events"][self.alias].add(
                asset_of(stage), extra={"range": report["range"], "runs": [*runs], "days": [*days]}
            )
            if stage in keyed:
                by_day = days_asset_of(stage)
                self.outlets.append(by_day)
                context["outlet_events"][by_day].extra = {"runs": [*runs]}
                context["outlet_events"][by_day].add_partitions(days)

    def _changes(self, outcomes: Sequence[JobOutcome], context: Context) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield the name of each stage whose answers have changed, with the runs and the days of the changes."""
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.commit.runs_table import committed_backfills
        from tailrace.lake.corrections.changed_days import changed_days
        from tailrace.settings import Settings

        lake, stages = Lake(Settings()), {one.name: one for one in chain(self.pipeline)}
        since = context["dag_run"].start_date if context["ti"].try_number > 1 else None
        for name in dict.fromkeys(one.pipeline for one in outcomes):
            runs = {
                one.run: one.generation for one in outcomes if one.pipeline == name and (one.changed or one.retracted)
            }
            # An attempt that failed has told nothing, and may have changed answers, which this attempt finds equal.
            earlier = committed_backfills(lake, name) if since is not None else []
            for run in earlier:
                if since and run.at and run.at >= since and (run.changed or run.retracted):
                    runs[run.run] = run.generation
            if runs:
                generations = sorted(generation for generation in runs.values() if generation is not None)
                days = changed_days(lake, cast("Ranged", stages[name]), generations, self.timezone)
                yield name, [run for run in runs if run is not None], days

    def _make_jobs(self, context: Context, report: dict[str, Any]) -> list[BackfillJob]:
        from tailrace.lake.catalog.lake import Lake
        from tailrace.settings import Settings

        asked, parts = self.find_ranges(context, Extent.of(Lake(Settings()), self.pipeline))
        ends = [text(parts[0][0]), text(parts[-1][1])]
        report |= {"range": ends, "dry_run": asked.dry_run, "reason": asked.reason}
        several = f", in {len(parts)} runs" if len(parts) > 1 else ""
        self.log.info("%s from %s to %s%s", self.pipeline.name, *ends, several)
        same = {"definition": self.definition, "reason": asked.reason, "dry_run": asked.dry_run}
        return [BackfillJob.of(first=first, last=last, **same) for first, last in parts]

    def _report_behind(self) -> dict[str, Any]:
        """Report the stages that lack corrections, and the ranges to backfill, for the pipeline and its inputs."""
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.corrections.stages_behind import backfills_of, stages_behind
        from tailrace.settings import Settings

        behind = stages_behind(Lake(Settings()), self.pipeline)
        for one in behind:
            self.log.warning("%s", one.said)
        ranges = [[text(first), text(last)] for first, last in backfills_of(behind)]
        return {"behind": [one.said for one in behind], "brings_up": ranges} if behind else {}


class BackfillOperator(RangesOperator):
    """Backfills the range that the user entered in the form, or the interval of a run of Airflow's *Backfill*.

    `cron` and `timezone` define the intervals.
    """

    def __init__(self, *, cron: str, timezone: str, **more: Any) -> None:
        super().__init__(timezone=timezone, **more)
        self.cron = cron

    def find_ranges(self, context: Context, extent: Extent) -> tuple[BackfillRequest, list[Interval]]:
        asked = BackfillRequest.of(context["params"])
        last_before = ByHand(self.cron, self.timezone).last_before
        return asked, cut_range(choose_range(asked, _interval(context), extent, last_before), asked.parallelism, extent)


def summarize(outcomes: Sequence[JobOutcome], *, dry_run: bool) -> dict[str, Any]:
    """Combine the outcomes of a run's parts into a dict for the run's page.

    In the dict, `said` is a summary in one line.
    """
    sums = {name: sum(getattr(one, name) for one in outcomes) for name in COUNTED}
    generations = [one.generation for one in outcomes if one.gave_way_to is None]
    newer = [one.gave_way_to for one in outcomes if one.gave_way_to is not None]
    said = f"{sums['changed']:,} changed, {sums['untouched']:,} untouched, {sums['retracted']:,} retracted"
    if dry_run:
        said = f"dry run: it would be {said}; nothing was changed"
    elif not generations:
        said = (
            f"gave way to run {newer[0].run} of generation {newer[0].generation}, which covers it; nothing was changed"
        )
    else:
        said += f", in generation {', '.join(map(str, generations))}"
        said += f"; {len(newer)} of {len(outcomes)} parts gave way to newer runs" if newer else ""
    return {
        **sums,
        "epoch": max((one.log_epoch for one in outcomes if one.log_epoch is not None), default=None),
        "generations": sorted({one.generation for one in outcomes if one.generation is not None}),
        "runs": [one.run for one in outcomes if one.run is not None],
        "parts": [one.model_dump(mode="json") for one in outcomes],
        "said": said,
    }


def _interval(context: Context) -> Interval | None:
    """Return the interval, in microseconds, of a run that Airflow's *Backfill* created, or None for any other run."""
    run: Any = context["dag_run"]
    if run.run_type != "backfill":
        return None
    first, last = run.data_interval_start, run.data_interval_end
    if first is None or last is None:
        raise RunnerError("this run of a Backfill has no data interval: start it again from Backfill", again=False)
    return _micros(first), _micros(last)


def _micros(at: datetime) -> int:
    """Convert an instant from Airflow to microseconds.

    The instant is converted to a plain `datetime` first, because the subtraction of Airflow's datetime type works
    differently.
    """
    return instant(datetime.fromisoformat(at.isoformat()))
