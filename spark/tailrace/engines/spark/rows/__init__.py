"""Rows of Spark on their way: of a log as its definition declares them, gathered, or to a table's branch."""
