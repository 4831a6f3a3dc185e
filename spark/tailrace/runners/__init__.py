"""Run jobs in the calling process, in a warm Spark session on this machine, or with a cluster's `spark-submit`.

A runner takes a job whose values have been validated (`jobs`), and returns the job's result. To prevent injection, no
value of a job passes through a shell, and instants appear in SQL only as numbers.
"""
