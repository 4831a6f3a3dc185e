"""Run the common SQL and a definition's own Python: in this process, or on a cluster."""
