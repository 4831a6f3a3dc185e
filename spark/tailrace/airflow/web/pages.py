"""Serve Tailrace's pages in Airflow's API server.

Each page is about one DAG, and requires a permission for that DAG.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from sqlalchemy import select

from tailrace.airflow.web.event_time_tab import event_time_tab
from tailrace.airflow.web.report import PACKAGE, RESULT, result_page
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.errors import TailraceError
from tailrace.plots.plot_page import templates
from tailrace.runners.jobs import LONGEST_REASON
from tailrace.settings import Settings

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; frame-ancestors 'self'"
"""The content security policy of a page: only Airflow may show it in a frame, and its script may call Airflow's API."""


def application() -> FastAPI:
    """Create the application.

    A page requires the permission to see its DAG; the backfill form requires the permission to trigger the DAG.
    """
    app = FastAPI(title="Tailrace", docs_url=None, redoc_url=None, openapi_url=None)
    may_read, may_see = Depends(requires_access_dag("GET", DagAccessEntity.XCOM)), Depends(requires_access_dag("GET"))
    may_trigger = Depends(requires_access_dag("POST", DagAccessEntity.RUN))
    app.get("/did/{dag_id}/{run_id:path}", response_class=HTMLResponse, dependencies=[may_read])(_did)
    app.get("/event-time/{dag_id}", response_class=HTMLResponse, dependencies=[may_see])(_event_time)
    app.get("/backfill/{dag_id}", response_class=HTMLResponse, dependencies=[may_trigger])(_backfill)
    app.get("/static/backfill.js")(_script)
    app.exception_handler(401)(_login)
    return app


def _did(dag_id: str, run_id: str, session: SessionDep) -> HTMLResponse:
    run: Any = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if run is None:
        raise HTTPException(404, f"there is no run {run_id} of {dag_id}")
    value = session.scalar(
        select(XComModel.value)
        .where(XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.key == RESULT)
        .order_by(XComModel.timestamp.desc())
    )
    did = json.loads(value) if isinstance(value, str) else value
    # The page has no scripts, and only Airflow may show the page in a frame.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
    return HTMLResponse(result_page(did, str(run.state)), headers={"Content-Security-Policy": policy})


def _event_time(dag_id: str, request: Request) -> HTMLResponse:
    """Show the answers of a DAG's definition over event time, and which run computed each answer."""
    try:
        text = event_time_tab(Lake(Settings()), _name(dag_id), dag_id, dict(request.query_params), _prefix(request))
    except TailraceError as error:
        raise HTTPException(400, str(error)) from None
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})


def _backfill(dag_id: str, request: Request) -> HTMLResponse:
    """Show the form for a backfill, prefilled from the address; Airflow's *Trigger* form cannot be prefilled."""
    root = _root(request)
    first, last, reason = (request.query_params.get(name, "") for name in ("from", "to", "reason"))
    text = templates(PACKAGE).get_template("backfill.html").render(
        name=_name(dag_id), dag=dag_id, dag_page=f"{root}/dags/{quote(dag_id)}", longest=LONGEST_REASON,
        runs=f"{root}/api/v2/dags/{quote(dag_id)}/dagRuns", script=f"{_prefix(request)}/static/backfill.js",
        first=first[:64], last=last[:64], reason=reason[:LONGEST_REASON],
    )  # fmt: skip
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})


def _login(request: Request, error: HTTPException) -> Response:
    """Redirect a browser to the login page. After the login, the browser returns to this page. Send other clients an
    error.
    """
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, 401)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{_root(request)}/api/v2/auth/login?next={quote(here, safe='')}")


def _script() -> Response:
    script = files(PACKAGE).joinpath("static", "backfill.js").read_bytes()
    return Response(script, media_type="text/javascript")


def _name(dag_id: str) -> str:
    """Return the name of the definition that a DAG is for: `hourly` for `hourly.backfill`."""
    name, dot, _ = dag_id.rpartition(".")
    if not dot:
        raise HTTPException(404, f"{dag_id} is no DAG of a definition")
    return name


def _prefix(request: Request) -> str:
    """Return the path prefix of Tailrace's pages at the address of Airflow's server."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _root(request: Request) -> str:
    """Return the path of Airflow at the server's address."""
    return _prefix(request).rpartition("/")[0]
