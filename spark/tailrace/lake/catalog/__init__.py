"""Reach the catalog: its tables, conditional commits, and what is told of them."""
