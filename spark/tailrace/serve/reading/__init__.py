"""Bounded queries on a lake for the pages; the results of each query are rows and cells."""
