"""Define the assets of answers, and the base classes of all operators, which report the result or failure of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tailrace.airflow.web.report import RESULT
from tailrace.model.base.errors import TailraceError
from tailrace.runners.jobs import Runner, RunnerError

if TYPE_CHECKING:
    from airflow.sdk import Context


def asset_of(name: str) -> Asset:
    """Return the asset of a pipeline's answers. A task that changes the answers emits an event of this asset."""
    return Asset(name=name, uri=f"tailrace://pipelines/{name}")


class ReportingOperator(BaseOperator):
    """Reports a task's result, or the reason for the task's failure, on the run's page.

    `subject` is the definition's name.
    """

    def __init__(self, *, subject: str, **more: Any) -> None:
        super().__init__(**more)
        self.subject = subject

    @contextmanager
    def reporting(self, context: Context) -> Iterator[dict[str, Any]]:
        """Yield the report as a dict. The block fills in the report; `said` is the result in one line.

        If the block raises an error, the task fails, and `failed` in the report contains the reason. The last line of
        the task's log also states the result or the reason. Airflow does not retry the task if another attempt would
        also fail.
        """
        report: dict[str, Any] = {"pipeline": self.subject}
        try:
            yield report
        except Exception as error:
            # Import this function only on an error, because its module loads the modules for tables, which Airflow does
            # not need to parse a DAG.
            from tailrace.lake.upkeep.diagnosis import explain_error

            explained = explain_error(error)
            reason = " ".join(str(explained).split())
            known = isinstance(explained, TailraceError)
            report["failed"] = reason if known else f"{type(explained).__name__}: {reason}"
            context["ti"].xcom_push(RESULT, report)
            if not known:
                raise
            final = isinstance(explained, RunnerError) and not explained.again
            raise (AirflowFailException if final else AirflowException)(reason) from None
        context["ti"].xcom_push(RESULT, report)
        self.log.info("%s", report["said"])


class RunnerOperator(ReportingOperator):
    """Runs the work of a task on a runner, and cancels the work if the task is killed. `runner` is called to create the
    runner.
    """

    def __init__(self, *, runner: Callable[[], Runner], **more: Any) -> None:
        super().__init__(**more)
        self.runner = runner
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
