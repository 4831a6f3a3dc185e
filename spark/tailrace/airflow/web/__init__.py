"""The pages that Airflow's API server serves for Tailrace: what a run did, event time, a backfill filled in."""
