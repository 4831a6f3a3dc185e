"""Tell of runs: metrics, structured logs and lineage."""
