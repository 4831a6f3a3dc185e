"""Run a definition's own Python over Arrow tables, whichever engine hands them over. Knows no engine."""
