"""Open DuckDB, write queries in its dialect, and read tables and bundles in it."""
