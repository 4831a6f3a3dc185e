-- How much came too late for its hour: what a backfill of the day would take in, unless one has.
select origin, cast(window_start as date) as day, count(*) as late, max(seconds_behind) as most_seconds_behind
from {{ ref('stg_hourly_departures_late') }}
group by origin, cast(window_start as date)
