"""Airflow: the stream of `pipelines/flights.py`, backfills by hand, the repair of what came too late, maintenance."""

import os
from pathlib import Path

from tailrace.airflow import backfill_dag, maintenance_dag, repair_dag, stream_dag

root = Path(__file__).parents[1]
definition = root / "pipelines" / "flights.py"
landing = os.environ.get("FLIGHTS_LANDING", root / "build" / "demo" / "landing")
# The flights are of 2013, so that the clock on the wall says nothing of how far behind they are.
stream = stream_dag(definition, folder=landing, every=1, behind=None)
backfill = backfill_dag(definition)
repair = repair_dag(definition)
maintenance = maintenance_dag(definition)
