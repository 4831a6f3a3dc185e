"""Serve Tailrace's pages in Airflow's API server: a run's result, event time, and a prefilled backfill form."""
