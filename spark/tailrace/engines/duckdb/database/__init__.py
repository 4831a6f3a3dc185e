"""Open DuckDB, write its dialect, and bring tables and bundles into it."""
