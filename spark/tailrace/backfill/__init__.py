"""Recompute ranges of event time, and replace only the rows that differ (rules V4, V5, X4)."""
