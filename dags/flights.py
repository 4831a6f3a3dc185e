"""Airflow: backfills of `pipelines/flights.py`, by hand."""

from pathlib import Path

from tailrace.airflow import backfill_dag

dag = backfill_dag(Path(__file__).parents[1] / "pipelines" / "flights.py")
