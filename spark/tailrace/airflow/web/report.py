"""Build the page for the tab *What it did*, which shows the result of a run in Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.plots.plot_page import templates

PACKAGE = "tailrace.airflow.web"
"""The package that contains the templates of the pages."""

RESULT = "did"
"""The name of the XCom that holds a run's result or the reason for its failure."""

COUNTED = ("changed", "untouched", "retracted")
"""The names of the window counts in the result of a backfill."""


def result_page(report: Mapping[str, Any] | None, state: str) -> str:
    """Render the page of a run from the report of its task. `report` is None if the task has not reported yet."""
    return templates(PACKAGE).get_template("result.html").render(report=report, state=state, counted=COUNTED)
