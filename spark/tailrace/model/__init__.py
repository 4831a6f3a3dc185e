"""The meaning of definitions, in pure Python that needs only the standard library.

No module of this package depends on Spark, Iceberg or the system clock. `step` is the function that streams, backfills
and replays apply to one epoch after another; `transition` is the part of `step` that all executions share unchanged.
"""
