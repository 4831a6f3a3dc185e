"""Run work in the executors' Python, and move rows between Spark's processes and this process."""
