"""Report on runs with metrics, structured logs and lineage."""
