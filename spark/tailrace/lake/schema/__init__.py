"""Describe tables: their contracts, contract files, layouts and types, and differences from their contracts."""
