"""Run jobs in the calling process, in a warm Spark session of this machine, or by a cluster's `spark-submit`.

A runner takes a job of checked values (`jobs`), and returns the job's result. No value of a job passes through a shell,
and instants reach SQL as numbers.
"""
