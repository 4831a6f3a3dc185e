"""Describe the tables: contracts and their files, layouts, types, and differences between a table and its contract."""
