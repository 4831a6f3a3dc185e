"""Maintain a definition's tables: the maintenance DAG's task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tailrace.airflow.operator import telling
from tailrace.airflow.web.report import RESULT
from tailrace.runners.jobs import MaintainJob, Runner

if TYPE_CHECKING:
    from airflow.sdk import Context


class MaintainOperator(BaseOperator):
    """Maintains a definition's tables; `definition` is `FILE` or `FILE:NAME`, with an absolute path."""

    ui_color = "#e3f1e1"

    def __init__(self, *, definition: str, name: str, runner: Callable[[], Runner], **more: Any) -> None:
        super().__init__(**more)
        self.definition, self.named, self.runner = definition, name, runner
        self._running: Runner | None = None

    def execute(self, context: Context) -> None:
        runner = self._running = self.runner()
        did = {"pipeline": self.named}
        with telling(context, did):
            done = runner.maintain(MaintainJob(definition=self.definition), lambda doing: self.log.info("%s", doing))
        summary = summed(done)
        context["ti"].xcom_push(RESULT, did | {"said": summary, "tables": done["tables"]})
        self.log.info("%s", summary)

    def on_kill(self) -> None:
        if self._running is not None:
            self._running.cancel()


def summed(done: Mapping[str, Any]) -> str:
    """Sum up the result of maintenance in one line."""
    tables = done["tables"]
    rewritten = sum(count["from"] for table in tables for count in table["rewritten"].values())
    expired, orphans = (sum(table[name] for table in tables) for name in ("expired", "orphan_files"))
    return (
        f"{len(tables)} tables: {rewritten:,} files written together, {expired:,} snapshots expired, "
        f"{orphans:,} orphan files deleted"
    )
