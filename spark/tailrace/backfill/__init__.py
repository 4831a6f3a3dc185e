"""Recompute ranges of event time, and replace them by the smallest difference (rules V4, V5, X4)."""
