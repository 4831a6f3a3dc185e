"""The meaning of a pipeline, in pure Python with only the standard library.

No module of this package depends on Spark, Iceberg or the system clock. `step` is the one function that a stream, a
backfill and a replay fold; `transition` is the part of `step` that all executions share unchanged.
"""
