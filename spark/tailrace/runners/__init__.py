"""Run jobs in the calling process, in a warm Spark session on this machine, or with a cluster's `spark-submit`.

A runner takes a job whose values have been validated (`jobs`), and returns the job's result. No value of a job passes
through a shell. In SQL, instants appear as numbers.
"""
