"""Where a run is run: on this machine, in the process that asks or in one warm Spark session, or by a cluster's submit.

A runner is asked for a backfill by values that were checked (`jobs`), and gives what it did. Nothing of a request
passes through a shell, and instants reach SQL as numbers.
"""
