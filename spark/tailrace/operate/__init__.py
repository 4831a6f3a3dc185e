"""Operate tables while streams run: apply changed definitions, maintain tables, and make Spark start faster."""
