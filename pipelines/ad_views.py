"""Views of video ads as their devices tell of them: some tell twice, some hours later."""

from tailrace import Log, minutes, seconds

views = Log(
    name="ad_views",
    columns={"view_id": "string", "viewer": "string", "video": "string", "ad": "string", "advertiser": "string"}
    | {"watched": "int", "length": "int", "rate": "decimal(9,6)", "at": "timestamp", "known": "timestamp"},
    event_time="at",
    arrival_time="known",
    disorder=minutes(1),
    percentiles={90: seconds(30)},
    record_id="view_id",
)
