"""Compute the answers for input that has ended, for backfills, audits and replays, on DuckDB or Spark."""
