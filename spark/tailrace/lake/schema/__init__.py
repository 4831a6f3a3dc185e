"""Describe tables: their contracts, contract files, layouts and types, and how live tables differ from contracts."""
