"""The task of the maintenance DAG, which maintains a definition's tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.airflow.tasks import RunnerOperator, absolute_place
from tailrace.plan.loader import load_any
from tailrace.runners.jobs import MaintainJob

if TYPE_CHECKING:
    from airflow.sdk import Context


class MaintainOperator(RunnerOperator):
    """Maintains a definition's tables; `definition` is `FILE` or `FILE:NAME`."""

    ui_color = "#e3f1e1"

    def __init__(self, *, definition: str | Path, subject: str | None = None, **more: Any) -> None:
        self.definition = absolute_place(definition)
        super().__init__(subject=subject or load_any(self.definition).name, **more)

    def execute(self, context: Context) -> None:
        with self.reporting(context) as report:
            done = self.start_runner().maintain(MaintainJob(definition=self.definition), self.log_progress)
            report |= {"said": summarize(done["tables"]), "tables": done["tables"]}


def summarize(tables: list[Mapping[str, Any]]) -> str:
    """Sum up the results of all maintained tables in one line."""
    rewritten = sum(count["from"] for table in tables for count in table["rewritten"].values())
    expired, orphans = (sum(table[name] for table in tables) for name in ("expired", "orphan_files"))
    return (
        f"{len(tables)} tables: {rewritten:,} files merged, {expired:,} snapshots expired, "
        f"{orphans:,} orphan files deleted"
    )
