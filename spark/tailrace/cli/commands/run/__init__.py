"""Run definitions, and ask what takes an engine."""
