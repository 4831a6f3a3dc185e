"""Run the common SQL and a definition's own Python code on Spark's executors.

Importing this package starts no JVM.
"""
