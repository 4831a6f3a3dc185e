"""Look at definitions and tables without Spark."""
