"""The meaning of a pipeline, in pure standard-library Python.

Nothing in here knows of Spark, Iceberg or a clock on the wall. `step` is the one function that a stream, a
backfill and a replay fold; `transition` is the part of it that every execution shares word for word.
"""
