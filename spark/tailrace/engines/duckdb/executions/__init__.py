"""The executions of a definition on DuckDB: a bundle and the open windows become ledger rows and the next state."""
