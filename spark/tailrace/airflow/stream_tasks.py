"""The two tasks of the stream DAG: one task starts the stream if necessary, and the other task fails if the stream
lags.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, Param

from tailrace.airflow.airflow_names import AirflowSkipException
from tailrace.airflow.form import param_texts
from tailrace.airflow.tasks import ReportingOperator, RunnerOperator, asset_of
from tailrace.airflow.web.report import RESULT
from tailrace.model.base.time import duration
from tailrace.model.definition.definition import Definition
from tailrace.plan.loader import load_all
from tailrace.runners.jobs import RunnerError, StreamJob, StreamState

if TYPE_CHECKING:
    from airflow.sdk import Context

STREAM, WATERMARK = "stream", "watermark"
"""The names of the stream DAG's tasks."""

YOUNG = 300.0
"""The maximum time, in seconds, that a new stream may take to create a ledger for each stage."""

SNAPSHOTS = "snapshots"
"""The name of the XCom in which the watermark task stores the snapshot id of each answers table."""

ACTIONS = ("keep", "stop", "restart")
"""The values that a user may select for the parameter `stream` in the form."""


def form() -> dict[str, Param]:
    """Create the form for *Trigger*, which asks what to do with the stream."""
    return {"stream": Param("keep", enum=list(ACTIONS), section="Action", **param_texts("stream"))}


class StreamOperator(RunnerOperator):
    """Starts a stream unless the stream is already running. The stream continues to run after the task.

    A manual run of the DAG may stop the stream, which then stays stopped until a manual run restarts it. A restart does
    not help if the arguments are wrong, or if another stream has the lease (the right to write the tables). If the
    stream ended for such a reason, the task fails once. The next run of the DAG starts the stream again.

    `definitions` are the definitions of the job, if they are loaded already. Raises `RunnerError` if one of their logs
    has no source in the job, or if a source has no log.
    """

    ui_color = "#dcefee"

    def __init__(self, *, job: StreamJob, definitions: Sequence[Definition] | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.job = job.check(load_all(job.definitions) if definitions is None else definitions)

    def execute(self, context: Context) -> None:
        action: Any = context["params"].get("stream", "keep")
        with self.reporting(context) as report:
            if action not in ACTIONS:
                raise RunnerError(f"stream: expected one of {', '.join(ACTIONS)}, found {action!r}", again=False)
            stream = self._act(action)
            report["said"] = {
                "running": f"{stream.named} runs",
                "started": f"started {stream.named}",
                "stopped": "the stream was stopped by hand: trigger this DAG with Stream restart to start it",
            }[stream.state]
            if stream.ended is not None:
                report["said"] += f"; the previous one ended: {stream.ended}"
            age = time.time() - (stream.since or 0.0)
            report["young"] = stream.state != "stopped" and stream.ended is None and age < YOUNG
        if stream.state == "stopped":
            raise AirflowSkipException(report["said"])

    def _act(self, action: str) -> StreamState:
        runner = self.start_runner()
        if action == "stop":
            return runner.stop_stream(self.job, self.log_progress)
        return runner.stream(self.job, self.log_progress, anew=action == "restart")


class WatermarkOperator(ReportingOperator):
    """Fails if a stage's watermark lags the wall clock by more than `behind`.

    A stage without a ledger also counts as lagging. The only exception is a stage whose stream started less than
    `YOUNG` seconds ago and did not replace a stream that had ended. If answers have changed since the previous run, the
    task emits an event of the Airflow asset that represents the answers.
    """

    ui_color = "#dcefee"

    def __init__(self, *, definitions: Sequence[Definition], behind: timedelta | None, **more: Any) -> None:
        self.alias = AssetAlias(f"{more['subject']} streamed")
        super().__init__(outlets=[self.alias], **more)
        self.definitions, self.behind = tuple(definitions), behind

    def execute(self, context: Context) -> None:
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.read.health import answer_snapshots, stream_faults
        from tailrace.settings import Settings

        task: Any = context["ti"]
        young = bool((task.xcom_pull(task_ids=STREAM, key=RESULT) or {}).get("young"))
        with self.reporting(context) as report:
            lake = Lake(Settings())
            now = {name: mark for one in self.definitions for name, mark in answer_snapshots(lake, one).items()}
            limit, at = None if self.behind is None else duration(self.behind), time.time_ns() // 1_000
            # Definitions may share stages, whose faults are told once.
            wrong = dict.fromkeys(
                fault for one in self.definitions for fault in stream_faults(lake, one, at, limit, young=young)
            )
            # Without a map index, Airflow would return the values of all earlier runs instead of the last value.
            before = task.xcom_pull(task_ids=self.task_id, key=SNAPSHOTS, include_prior_dates=True, map_indexes=-1)
            task.xcom_push(SNAPSHOTS, now)
            changed = [name for name, mark in now.items() if mark is not None and (before or {}).get(name) != mark]
            for name in changed:
                context["outlet_events"][self.alias].add(asset_of(name), extra={"snapshot": now[name]})
            if wrong:
                raise RunnerError("; ".join(wrong), again=False)
            report["said"] = f"it keeps up; {', '.join(changed) + ' changed' if changed else 'nothing has changed'}"
