"""Report on runs: metrics, structured logs and lineage."""
