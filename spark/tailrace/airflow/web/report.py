"""Build the page for the tab *What it did*, which shows the result of a run in Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

RESULT = "did"
"""The name of the XCom that holds a run's result or the reason for its failure."""

COUNTED = ("changed", "untouched", "retracted")
"""The names of the window counts in the result of a backfill."""


def templates(*packages: str) -> jinja2.Environment:
    """Create the Jinja environment for the page templates. The environment escapes all values.

    `packages` are packages with further templates.
    """
    loaders = [jinja2.PackageLoader(one) for one in ("tailrace.airflow.web", *packages)]
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def result_page(report: Mapping[str, Any] | None, state: str) -> str:
    """Render the page of a run from the report of its task. `report` is None if the task has not reported yet."""
    return templates().get_template("result.html").render(report=report, state=state, counted=COUNTED)
