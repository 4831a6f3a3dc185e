"""The pages that Airflow's API server serves for Tailrace, to readers who may read the run that a page is about."""

from __future__ import annotations

import json
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from sqlalchemy import select

from tailrace.airflow.operator import RESULT
from tailrace.airflow.report import page


def application() -> FastAPI:
    """Make the application; each of its pages checks that the reader may read the run's XComs."""
    app = FastAPI(title="Tailrace", docs_url=None, redoc_url=None, openapi_url=None)
    may_read = Depends(requires_access_dag("GET", DagAccessEntity.XCOM))
    app.get("/did/{dag_id}/{run_id:path}", response_class=HTMLResponse, dependencies=[may_read])(_did)
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
    # No script runs on the page, and only Airflow shows it in a frame.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
    return HTMLResponse(page(did, str(run.state)), headers={"Content-Security-Policy": policy})
