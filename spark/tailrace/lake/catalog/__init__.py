"""Reach the catalog: its tables, conditional commits, and notices of them."""
