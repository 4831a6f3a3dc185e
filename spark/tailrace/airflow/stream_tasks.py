"""Start a stream that is not running, and fail if its answers fall behind: the stream DAG's two tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, BaseOperator, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tailrace.airflow.assets import asset_of
from tailrace.airflow.operator import telling
from tailrace.airflow.web.report import RESULT
from tailrace.model.base.time import duration
from tailrace.model.definition.definition import Definition
from tailrace.runners.jobs import Runner, RunnerError, Streaming, StreamJob

if TYPE_CHECKING:
    from airflow.sdk import Context

STREAM, WATERMARK = "stream", "watermark"
"""The names of the tasks."""

YOUNG = 300.0
"""The maximum seconds until each stage of a new stream has a ledger."""

SNAPSHOTS = "snapshots"
"""The XCom of the watermark's task with the snapshot of each table of answers."""


def form() -> dict[str, Param]:
    """Make the form of *Trigger*, which asks what to do with the stream."""
    return {
        "stream": Param(
            "keep",
            title="Stream",
            description="keep: have it run, unless it was stopped here. stop: end it at the next epoch's boundary, and "
            "leave it so. restart: the same, and start it again where it was.",
            enum=list(ACTIONS),
            section="What is done",
        )
    }


ACTIONS = ("keep", "stop", "restart")


class StreamOperator(BaseOperator):
    """Starts a stream, which runs on after the task, unless it is running already.

    A manual run may stop the stream, which then stays stopped until a manual run restarts it. The task fails once if
    the stream ended for a reason that a restart does not mend: another stream has its lease, or its arguments are
    wrong. The next run starts the stream again.
    """

    ui_color = "#dcefee"

    def __init__(self, *, job: StreamJob, definition: Definition, runner: Callable[[], Runner], **more: Any) -> None:
        super().__init__(**more)
        self.job, self.definition, self.runner = job, definition, runner

    def execute(self, context: Context) -> None:
        did = {"pipeline": self.definition.name}
        action: Any = context["params"].get("stream", "keep")
        with telling(context, did):
            if action not in ACTIONS:
                raise RunnerError(f"stream: expected one of {', '.join(ACTIONS)}, found {action!r}", again=False)
            stream = self._done(action)
        summary = {
            "running": f"{stream.named} runs",
            "started": f"started {stream.named}",
            "stopped": "it was stopped by hand: trigger this DAG with Stream restart to start it",
        }[stream.state]
        if stream.ended is not None:
            summary += f"; the one before ended: {stream.ended}"
        age = time.time() - (stream.since or 0.0)
        young = stream.state != "stopped" and stream.ended is None and age < YOUNG
        context["ti"].xcom_push(RESULT, did | {"said": summary, "young": young})
        self.log.info("%s", summary)
        if stream.state == "stopped":
            raise AirflowSkipException(summary)

    def _done(self, action: str) -> Streaming:
        runner = self.runner()

        def tell(doing: str) -> None:
            self.log.info("%s", doing)

        if action == "stop":
            return runner.stop_stream(self.job, tell)
        return runner.stream(self.job, tell, anew=action == "restart")


class WatermarkOperator(BaseOperator):
    """Fails if a stage's watermark is more than `behind` behind the wall clock.

    A stage without a ledger also counts as behind, unless its stream started less than `YOUNG` seconds ago and did not
    replace an ended one. Answers that have changed since the previous run emit an event of their asset.
    """

    ui_color = "#dcefee"

    def __init__(self, *, definition: Definition, behind: timedelta | None, **more: Any) -> None:
        self.alias = AssetAlias(f"{definition.name} streamed")
        super().__init__(outlets=[self.alias], **more)
        self.definition, self.behind = definition, behind

    def execute(self, context: Context) -> None:
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.read.health import answers, unwell
        from tailrace.settings import Settings

        did = {"pipeline": self.definition.name}
        stream: Any = context["ti"].xcom_pull(task_ids=STREAM, key=RESULT)
        young = bool((stream or {}).get("young"))
        with telling(context, did):
            lake = Lake(Settings())
            now = answers(lake, self.definition)
            most = None if self.behind is None else duration(self.behind)
            wrong = unwell(lake, self.definition, time.time_ns() // 1_000, most, young=young)
        # Without a map index, Airflow would return the values of all earlier runs instead of the last one.
        before: Any = context["ti"].xcom_pull(
            task_ids=self.task_id, key=SNAPSHOTS, include_prior_dates=True, map_indexes=-1
        )
        context["ti"].xcom_push(SNAPSHOTS, now)
        changed = [
            name for name, snapshot in now.items() if snapshot is not None and (before or {}).get(name) != snapshot
        ]
        for name in changed:
            context["outlet_events"][self.alias].add(asset_of(name), extra={"snapshot": now[name]})
        if wrong:
            context["ti"].xcom_push(RESULT, did | {"failed": "; ".join(wrong)})
            raise AirflowFailException("; ".join(wrong))
        summary = f"it keeps up; {', '.join(changed)} changed" if changed else "it keeps up; nothing has changed"
        context["ti"].xcom_push(RESULT, did | {"said": summary})
        self.log.info("%s", summary)
