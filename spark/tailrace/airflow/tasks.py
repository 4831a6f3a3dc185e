"""Run a task's work, and report its result or its failure: the base of all operators. Name the assets of answers."""

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
    """Return the asset of a pipeline's answers; a task that changes the answers emits an event."""
    return Asset(name=name, uri=f"tailrace://pipelines/{name}")


class ReportingOperator(BaseOperator):
    """Reports the result of a task, or the reason of its failure, for the tab of the run. `subject` is a definition's
    name."""

    def __init__(self, *, subject: str, **more: Any) -> None:
        super().__init__(**more)
        self.subject = subject

    @contextmanager
    def reporting(self, context: Context) -> Iterator[dict[str, Any]]:
        """Yield the report, which the block completes: `said` is the result in one line.

        An error in the block fails the task, and the report then has the reason as `failed`. The last line of the
        task's log has the result or the reason. A task that would only fail again is not retried.
        """
        report: dict[str, Any] = {"pipeline": self.subject}
        try:
            yield report
        except Exception as error:
            # Imported here because parsing a DAG needs none of the tables' modules.
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
    """Has a runner do the work of a task, and cancels the work if the task is killed. `runner` makes the runner."""

    def __init__(self, *, runner: Callable[[], Runner], **more: Any) -> None:
        super().__init__(**more)
        self.runner = runner
        self._running: Runner | None = None

    def start_runner(self) -> Runner:
        """Make the runner that `on_kill` cancels."""
        self._running = self.runner()
        return self._running

    def log_progress(self, doing: str) -> None:
        """Log what the runner does."""
        self.log.info("%s", doing)

    def on_kill(self) -> None:
        if self._running is not None:
            self._running.cancel()
