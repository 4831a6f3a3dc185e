"""Simulate a stream at 10, 100 and 1,000 cores, by a model of its costs that is fitted to small streams."""
