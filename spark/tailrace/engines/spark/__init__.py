"""Run the common SQL and a definition's own Python on Spark's executors. Importing it starts no JVM."""
