-- What was published when the hour was complete, and what it became.
select
    origin, window_start, window_end,
    max_by(flights, version) filter (where timing in ('early', 'on_time')) as flights_on_time,
    max_by(mean_delay, version) filter (where timing in ('early', 'on_time')) as mean_delay_on_time,
    max_by(struct(flights), version).flights as flights,
    max_by(struct(mean_delay), version).mean_delay as mean_delay,
    count_if(timing not in ('early', 'on_time')) as restatements,
    max(published_at) as last_published_at,
    bool_or(writer = 'backfill') as backfilled,
    max_by(why, version) as why
from {{ ref('restatements') }}
group by origin, window_start, window_end
