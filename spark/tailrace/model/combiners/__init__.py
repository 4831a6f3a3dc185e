"""Combiners, which compute the results of windows; the accumulators of a combiner can be merged in any order."""
