"""Tailrace's pages in Airflow's API server: a run's result, a DAG's event time, and a prefilled backfill form."""
