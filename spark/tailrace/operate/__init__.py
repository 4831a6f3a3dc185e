"""Operate tables while streams run: apply changed definitions, maintain tables, and speed up Spark's start."""
