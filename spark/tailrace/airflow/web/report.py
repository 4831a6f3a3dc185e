"""Write the page with a run's result: the tab *What it did* of a run in Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

RESULT = "did"
"""The XCom with a run's result, or the reason of its failure."""

COUNTED = ("changed", "untouched", "retracted")
"""The counts of windows in the result of a backfill."""


def templates(*packages: str) -> jinja2.Environment:
    """Make the environment of the pages' templates, which escape all values; `packages` have further templates."""
    loaders = [jinja2.PackageLoader(one) for one in ("tailrace.airflow.web", *packages)]
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def result_page(report: Mapping[str, Any] | None, state: str) -> str:
    """Write the page of a run from its task's report; None if the task has not reported yet."""
    return templates().get_template("result.html").render(report=report, state=state, counted=COUNTED)
