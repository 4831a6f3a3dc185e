"""The two logs of a search engine: what is asked, and which ads are clicked on, each told in its own time."""

from tailrace import Log, Union, minutes

times = {"at": "timestamp", "known": "timestamp"}
searches = Log(
    name="searches",
    columns={"query_id": "string", "term": "string"} | times,
    event_time="at",
    arrival_time="known",
    disorder=minutes(2),
    record_id="query_id",
)
clicks = Log(
    name="clicks",
    columns={"click_id": "string", "query_id": "string", "ad": "string"} | times,
    event_time="at",
    arrival_time="known",
    disorder=minutes(2),
    record_id="click_id",
)
searches_and_clicks = Union(name="searches_and_clicks", of=(searches, clicks))
