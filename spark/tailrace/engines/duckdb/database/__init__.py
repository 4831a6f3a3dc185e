"""Open DuckDB databases, write queries in DuckDB's dialect, and read tables and bundles."""
