"""Compute ranges of event time anew, and replace them by the smallest difference (rules V4, V5, X4)."""
