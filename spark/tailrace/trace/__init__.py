"""Trace a record through definitions: find its windows and the panes, answers and rows that contain it.

Tracing needs no engine, neither DuckDB nor Spark.
"""
