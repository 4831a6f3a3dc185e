"""Declare Tailrace's Airflow plugin, which Airflow finds through the entry point of the installed package."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tailrace.airflow.timetable import ByHand

PREFIX = "/tailrace"
"""The path prefix of the pages at Airflow's address."""


class _Pages:
    """The web application for Tailrace's pages. The application is created at the first request.

    Schedulers and tasks also load this plugin, but never need the web application.
    """

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            from tailrace.airflow.web.pages import application

            self._app = application()
        await self._app(scope, receive, send)


class TailracePlugin(AirflowPlugin):
    """The plugin: a timetable for manual backfills, a tab with a run's result, and a tab with a DAG's event time."""

    name = "tailrace"
    timetables = [ByHand]  # noqa: RUF012 - Airflow reads lists of the class
    fastapi_apps = [{"app": _Pages(), "url_prefix": PREFIX, "name": "tailrace"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": name, "href": f"{PREFIX}/{page}/{ids}", "destination": destination, "url_route": f"tailrace-{page}"}
        for name, page, ids, destination in (
            ("What it did", "did", "{DAG_ID}/{RUN_ID}", "dag_run"),
            ("Event time", "event-time", "{DAG_ID}", "dag"),
        )
    ]
