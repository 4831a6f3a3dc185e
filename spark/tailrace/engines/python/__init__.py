"""Run a definition's own Python code over Arrow tables, which may come from either engine."""
