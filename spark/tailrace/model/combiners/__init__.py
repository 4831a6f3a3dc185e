"""Combiners, which compute the results of a window; their accumulators can be merged in any order."""
