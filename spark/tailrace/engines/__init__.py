"""What runs the common SQL and a definition's own Python: DuckDB inside the process, or Spark on a cluster."""
