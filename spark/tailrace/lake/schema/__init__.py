"""Describe the tables: contracts, their files, layouts and types, and the differences of a table to its contract."""
