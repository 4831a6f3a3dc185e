"""Run a definition's own Python code over Arrow tables, independently of the engine that provides the tables."""
