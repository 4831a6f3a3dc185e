"""Run queries in the common SQL and a definition's own Python code, either in this process or on a cluster."""
