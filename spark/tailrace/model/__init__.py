"""The meaning of definitions, in pure Python that needs only the standard library.

No module of this package depends on Spark, Iceberg or the system clock. Streams, backfills and replays apply the
function `step` to one epoch after another. All executions share one part of `step` unchanged: the module `transition`.
"""
