"""Provide the shared parts of commands: their list, options, the process, and the Spark session."""
