"""Take open windows through an epoch on DuckDB, in SQL alone or by the reference step."""
