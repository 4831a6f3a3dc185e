"""Airflow: backfills of `pipelines/flights.py` by hand, the repair of what came too late, and maintenance."""

from pathlib import Path

from tailrace.airflow import backfill_dag, maintenance_dag, repair_dag

definition = Path(__file__).parents[1] / "pipelines" / "flights.py"
backfill = backfill_dag(definition)
repair = repair_dag(definition)
maintenance = maintenance_dag(definition)
