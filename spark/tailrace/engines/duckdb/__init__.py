"""The engine that runs DuckDB in this process, for work that fits on one machine.

This engine needs neither a JVM nor Spark's query planning.
"""
