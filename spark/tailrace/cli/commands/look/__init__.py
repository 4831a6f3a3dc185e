"""Commands that show definitions and tables without Spark."""
