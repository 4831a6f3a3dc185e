"""Combiners, which compute the results of a window: their accumulators merge in any order."""
