"""Compute the answers of finished input for backfills, audits and replays, on DuckDB or Spark."""
