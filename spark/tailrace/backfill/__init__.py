"""Recompute ranges of event time from the log, and replace only the rows that differ (rules V4, V5, X4)."""
