"""The log of a search engine: what is asked, and which ads are clicked on, each told in its own time."""

from tailrace import Log, minutes

searches = Log(
    name="searches",
    columns={"event_id": "string", "kind": "string", "query_id": "string", "click_id": "string", "term": "string"}
    | {"ad": "string", "at": "timestamp", "known": "timestamp"},
    event_time="at",
    arrival_time="known",
    disorder=minutes(2),
    record_id="event_id",
)
