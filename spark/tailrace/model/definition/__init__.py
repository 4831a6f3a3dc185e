"""Definitions as users declare them: pipelines, computations, maps and joins, with their checks and their meaning."""
