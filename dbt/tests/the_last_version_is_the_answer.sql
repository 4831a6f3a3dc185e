select origin, window_start from (
    select origin, window_start, flights, departures, mean_delay from {{ ref('restatements') }}
    where current and flights is not null
    except
    select origin, window_start, flights, departures, mean_delay from {{ ref('stg_hourly_departures') }}
)
