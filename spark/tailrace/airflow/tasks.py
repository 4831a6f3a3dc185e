"""Define the assets of answers, and the base classes of all operators, which report the result or failure of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import airflow.sdk
from airflow.sdk import Asset, BaseOperator

from tailrace.airflow.airflow_names import AirflowException, AirflowFailException
from tailrace.airflow.connection import connected
from tailrace.airflow.web.report import RESULT
from tailrace.model.base.errors import TailraceError
from tailrace.runners.jobs import Runner, RunnerError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tailrace.settings import Settings


def asset_of(name: str) -> Asset:
    """Return the asset of a pipeline's answers. A task that changes the answers emits an event of this asset."""
    return Asset(name=name, uri=f"tailrace://pipelines/{name}")


def days_asset_of(name: str) -> Asset:
    """Return the asset of the days of a pipeline's answers, whose events have partition keys such as `2013-03-08`.

    A backfill that changes the answers of several days emits an event for each day. This takes Airflow 3.3.
    """
    return Asset(name=f"{name} days", uri=f"tailrace://pipelines/{name}/days")


HAS_PARTITION_KEYS = "PartitionedAtRuntime" in airflow.sdk.__all__
"""Whether a task can give the events of an asset partition keys."""


def explain(error: Exception, settings: Settings | None = None) -> Exception:
    """Diagnose an error, as the commands do. If `settings` is None, the settings of the environment hold."""
    # Import this function only on an error, because its module loads the modules for tables, which Airflow does not
    # need to parse a DAG.
    from tailrace.lake.upkeep.diagnosis import explain_error

    return explain_error(error, settings)


def reason_of(explained: Exception) -> str:
    """Return the reason for a failure in one line."""
    reason = " ".join(str(explained).split())
    return reason if isinstance(explained, TailraceError) else f"{type(explained).__name__}: {reason}"


def is_worth_retrying(explained: Exception) -> bool:
    """Return False if another attempt at a failed task would also fail."""
    return not (isinstance(explained, RunnerError) and not explained.again)


def failure(reason: str, *, again: bool) -> AirflowException:
    """Create the error that fails a task. Airflow does not try the task again if `again` is False."""
    made: AirflowException = (AirflowException if again else AirflowFailException)(reason)
    return made


def absolute_place(definition: str | Path) -> str:
    """Make the path in `FILE` or `FILE:NAME` absolute, because jobs require an absolute path."""
    path, _, name = str(definition).partition(":")
    return str(Path(path).resolve()) + (f":{name}" if name else "")


class ReportingOperator(BaseOperator):
    """Reports a task's result, or the reason for the task's failure, on the run's page.

    `subject` is the definition's name. `conn_id` is the id of the connection that names the lake; without it, the
    settings of the environment name the lake.
    """

    def __init__(self, *, subject: str, conn_id: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.subject, self.conn_id = subject, conn_id

    @contextmanager
    def reporting(self, context: Context) -> Iterator[dict[str, Any]]:
        """Yield the report as a dict. The block fills in the report; `said` is the result in one line.

        If the block raises an error, the task fails, and `failed` in the report contains the reason. The last line of
        the task's log also states the result or the reason. Airflow does not retry the task if another attempt would
        also fail.
        """
        report: dict[str, Any] = {"pipeline": self.subject}
        explained: Exception | None = None
        try:
            with connected(self.conn_id):
                try:
                    yield report
                except Exception as error:
                    # While the settings of the connection hold, because a diagnosis may look at the lake.
                    explained = explain(error)
                    raise
        except Exception as error:
            explained = explained or explain(error)
            report["failed"] = reason_of(explained)
            context["ti"].xcom_push(RESULT, report)
            if not isinstance(explained, TailraceError):
                raise
            raise failure(reason_of(explained), again=is_worth_retrying(explained)) from None
        context["ti"].xcom_push(RESULT, report)
        self.log.info("%s", report["said"])


class RunnerOperator(ReportingOperator):
    """Runs the work of a task on a runner, and cancels the work if the task is killed. `runner` is called to create the
    runner; without it, the work runs on the task's machine, in the installation of the task.
    """

    def __init__(self, *, runner: Callable[[], Runner] | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.runner = runner or _local
        self._running: Runner | None = None

    def start_runner(self) -> Runner:
        """Create the runner, and keep a reference so that `on_kill` can cancel the runner's work."""
        self._running = self.runner()
        return self._running

    def log_progress(self, doing: str) -> None:
        """Log a line about the runner's progress."""
        self.log.info("%s", doing)

    def on_kill(self) -> None:
        if self._running is not None:
            self._running.cancel()


def _local() -> Runner:
    from tailrace.runners.local import Local

    return Local()
