"""Run a definition's own Python code over Arrow tables, whichever engine the tables come from."""
