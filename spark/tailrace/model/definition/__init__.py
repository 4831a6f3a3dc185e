"""Definitions, as users declare them: logs, pipelines, computations and maps, with their checks and their meaning."""
