"""Airflow: the marts of `dbt/`, built anew when what they read has changed."""

from pathlib import Path

from tailrace.airflow import dbt_dag

marts = dbt_dag(Path(__file__).parents[1] / "dbt", reads=["hourly_departures"])
