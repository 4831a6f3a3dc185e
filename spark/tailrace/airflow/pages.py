"""The pages that Airflow's API server serves for Tailrace, to those who may do there what a page is about."""

from __future__ import annotations

import json
from html import escape
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

from tailrace.airflow.operator import RESULT
from tailrace.airflow.report import STYLE, page


def application() -> FastAPI:
    """Make the application; each of its pages checks that its reader may read the run's XComs, or start a run."""
    app = FastAPI(title="Tailrace", docs_url=None, redoc_url=None, openapi_url=None)
    may_read = Depends(requires_access_dag("GET", DagAccessEntity.XCOM))
    app.get("/did/{dag_id}/{run_id:path}", response_class=HTMLResponse, dependencies=[may_read])(_did)
    may_start = Depends(requires_access_dag("POST", DagAccessEntity.RUN))
    app.get("/backfill/{dag_id}", response_class=HTMLResponse, dependencies=[may_start])(_backfill)
    app.get("/static/backfill_page.js")(_script)
    app.exception_handler(401)(_login)
    return app


def _script() -> Response:
    text = files("tailrace.airflow").joinpath("backfill_page.js").read_text(encoding="utf-8")
    return Response(text, media_type="text/javascript", headers={"X-Content-Type-Options": "nosniff"})


def _login(request: Request, error: HTTPException) -> Response:
    """Send somebody who is not logged in to where that is done, and back; a script is told so."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, 401)
    root = request.scope.get("root_path", "").removesuffix("/tailrace")
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{root}/api/v2/auth/login?next={quote(here, safe='')}")


def _backfill(dag_id: str, request: Request) -> HTMLResponse:
    """Show the form of a backfill with the range that the address names filled in; Airflow's own form takes none."""
    if not dag_id.endswith(".backfill"):
        raise HTTPException(404, f"{dag_id} is no DAG of backfills")
    fields = (
        ("from", "From", "the event time at which the range starts, as 2013-03-08T15:00:00Z"),
        ("to", "To", "the event time at which it ends, which is not in it"),
        ("reason", "Reason", "why, for the table of runs"),
    )
    rows = "".join(
        f'<p><label for="{name}">{title}</label><br><input id="{name}" name="{name}" size="40" '
        f'value="{escape(request.query_params.get(name, "")[:200])}"> <small>{note}</small></p>'
        for name, title, note in fields
    )
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Backfill</title><style>{STYLE}</style>'
        f'<script src="../static/backfill_page.js" defer></script></head><body><h1>{escape(dag_id)}</h1>'
        "<p>Computes a range of event time anew from the log, beside the stream, and merges what differs.</p>"
        f'<form data-dag="{escape(dag_id)}">{rows}<p><label><input type="checkbox" name="dry_run"> Dry run</label> '
        "<small>say what would change, and change nothing</small></p>"
        '<p><button type="submit">Start the backfill</button></p></form><p role="status"></p></body></html>'
    )
    policy = (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"})


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
    # No script runs on the page, and only Airflow shows it in a frame.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
    return HTMLResponse(page(did, str(run.state)), headers={"Content-Security-Policy": policy})
