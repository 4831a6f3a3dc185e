"""The log of what is asked of a search engine."""

from tailrace import BoundedDisorder, Log, seconds

queries = Log(
    name="queries",
    columns={"term": "string", "at": "timestamp"},
    event_time="at",
    # Silence of a part of the source is no news of a term: it is waited for.
    watermark=BoundedDisorder(seconds(5), idle=None),
)
