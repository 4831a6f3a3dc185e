"""Run Python code on Spark's executors, and move rows between Spark's processes and this process."""
