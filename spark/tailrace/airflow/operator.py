"""Check the parameters, run the backfill, and report the result: the single task of a backfill DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tailrace.airflow.assets import asset_of
from tailrace.airflow.form import Asked
from tailrace.airflow.ranges import Extent, Interval, chosen, cut
from tailrace.airflow.timetable import ByHand
from tailrace.airflow.web.report import COUNTED, RESULT
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import instant, text
from tailrace.model.definition.definition import Ranged
from tailrace.runners.jobs import BackfillJob, JobOutcome, Runner, RunnerError

if TYPE_CHECKING:
    from airflow.sdk import Context


@contextmanager
def telling(context: Context, did: Mapping[str, Any]) -> Iterator[None]:
    """Turn errors raised in this context into the task's `failure`, and show the reason in the run's tab.

    The tab shows `did` beside the reason.
    """
    try:
        yield
    except Exception as error:
        # Imported here because parsing a DAG needs none of the tables' modules.
        from tailrace.lake.upkeep.diagnosis import explain_error

        shown = explain_error(error)
        context["ti"].xcom_push(RESULT, {**did, "failed": line(shown)})
        if not isinstance(shown, TailraceError):
            raise
        raise failure(shown) from None


class BackfillOperator(BaseOperator):
    """Runs a backfill of a definition; `definition` is `FILE` or `FILE:NAME`, with an absolute path.

    Its XCom `did` has the result. A run that changed anything emits an event of the table's asset. The log's last line
    has the reason of a failure; a run that would only fail again is not retried.
    """

    ui_color = "#dbe9f6"

    def __init__(
        self,
        *,
        definition: str,
        pipeline: Ranged,
        cron: str,
        timezone: str,
        runner: Callable[[], Runner],
        **more: Any,
    ) -> None:
        self.asset = asset_of(pipeline.name)
        self.alias = AssetAlias(f"{pipeline.name} backfilled")
        super().__init__(outlets=[self.alias], **more)
        self.definition, self.pipeline, self.runner = definition, pipeline, runner
        self.cron, self.timezone = cron, timezone
        self._running: Runner | None = None

    def execute(self, context: Context) -> None:
        did: dict[str, Any] = {"pipeline": self.pipeline.name}
        with telling(context, did):
            jobs = self._jobs(context, did)
            outcomes = self._run(jobs)
            did |= self._done(outcomes, dry_run=jobs[0].dry_run)
            if not jobs[0].dry_run:
                did |= self._behind()
        context["ti"].xcom_push(RESULT, did)
        self.log.info("%s", did["said"])
        if not did["dry_run"] and (did["changed"] or did["retracted"]):
            context["outlet_events"][self.alias].add(self.asset, extra={"range": did["range"], "runs": did["runs"]})

    def on_kill(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def asked(self, context: Context, extent: Extent) -> tuple[Asked, list[Interval]]:
        """Return the request for the run, and the ranges of its separate runs."""
        asked = Asked.of(context["params"])
        interval = chosen(asked, _interval(context), extent, self._before)
        return asked, cut(interval, asked.parallelism, extent)

    def _jobs(self, context: Context, did: dict[str, Any]) -> list[BackfillJob]:
        from tailrace.lake.catalog.lake import Lake
        from tailrace.settings import Settings

        asked, parts = self.asked(context, Extent.of(Lake(Settings()), self.pipeline))
        ends = [text(parts[0][0]), text(parts[-1][1])]
        did |= {"range": ends, "dry_run": asked.dry_run, "reason": asked.reason}
        self.log.info(
            "%s from %s to %s%s", self.pipeline.name, *ends, f", in {len(parts)} runs" if len(parts) > 1 else ""
        )
        return [
            BackfillJob.of(
                definition=self.definition, first=first, last=last, reason=asked.reason, dry_run=asked.dry_run
            )
            for first, last in parts
        ]

    def _before(self, end: int) -> Interval:
        """Find the last complete interval of the cron expression before an instant, in microseconds."""
        return ByHand(self.cron, self.timezone).last_before(end)

    def _run(self, jobs: Sequence[BackfillJob]) -> list[JobOutcome]:
        runner = self._running = self.runner()
        with ThreadPoolExecutor(len(jobs)) as pool:
            running = [pool.submit(runner.backfill, job, lambda doing: self.log.info("%s", doing)) for job in jobs]
            return [outcome for future in running for outcome in future.result()]

    def _behind(self) -> dict[str, Any]:
        """Report the stages that lack corrections, and the ranges to backfill for them."""
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.corrections.stages_behind import backfills_of, stages_behind
        from tailrace.settings import Settings

        behind = stages_behind(Lake(Settings()), self.pipeline)
        for one in behind:
            self.log.warning("%s", one.said)
        ranges = [[text(first), text(last)] for first, last in backfills_of(behind)]
        return {"behind": [one.said for one in behind], "brings_up": ranges} if behind else {}

    def _done(self, outcomes: Sequence[JobOutcome], *, dry_run: bool) -> dict[str, Any]:
        sums = {name: sum(getattr(one, name) for one in outcomes) for name in COUNTED}
        return {
            **sums,
            "epoch": max((one.log_epoch for one in outcomes if one.log_epoch is not None), default=None),
            "generations": sorted({one.generation for one in outcomes if one.generation is not None}),
            "runs": [one.run for one in outcomes if one.run is not None],
            "parts": [one.model_dump(mode="json") for one in outcomes],
            "said": summed(outcomes, sums, dry_run=dry_run),
        }


def summed(outcomes: Sequence[JobOutcome], sums: dict[str, int], *, dry_run: bool) -> str:
    """Sum up the result of a run in one line."""
    over = [one.gave_way_to for one in outcomes if one.gave_way_to is not None]
    counts = f"{sums['changed']:,} changed, {sums['untouched']:,} untouched, {sums['retracted']:,} retracted"
    if dry_run:
        return f"dry run: it would be {counts}; nothing was changed"
    if len(over) == len(outcomes):
        return f"gave way to run {over[0].run} of generation {over[0].generation}, which covers it; nothing was changed"
    made = ", ".join(str(one.generation) for one in outcomes if one.gave_way_to is None)
    gave = f"; {len(over)} of {len(outcomes)} parts gave way to newer runs" if over else ""
    return f"{counts}, in generation {made}{gave}"


def _interval(context: Context) -> Interval | None:
    """Return the interval of a run of Airflow's *Backfill*, in microseconds; None for other runs."""
    run: Any = context["dag_run"]
    if run.run_type != "backfill":
        return None
    first, last = run.data_interval_start, run.data_interval_end
    if first is None or last is None:
        raise RunnerError("this run of a Backfill has no data interval: start it anew from Backfill", again=False)
    return _micros(first), _micros(last)


def _micros(at: datetime) -> int:
    """Convert an instant of Airflow's type, which subtracts differently, to microseconds by a plain `datetime`."""
    return instant(datetime.fromisoformat(at.isoformat()))


def failure(error: TailraceError) -> AirflowException:
    """Return the exception for a failing task; a task that would only fail again is not retried."""
    again = not isinstance(error, RunnerError) or error.again
    return (AirflowException if again else AirflowFailException)(line(error))


def line(error: Exception) -> str:
    """Return why a run failed, in one line."""
    message = " ".join(str(error).split())
    return message if isinstance(error, TailraceError) else f"{type(error).__name__}: {message}"
