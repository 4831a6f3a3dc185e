{{ config(severity='warn') }}
-- The last version of each answer is the current one. Beside a stream these follow some epochs behind: a warning, then.
select origin, window_start from (
    select origin, window_start, flights, departures, mean_delay from {{ ref('restatements') }}
    where current and flights is not null
    except
    select origin, window_start, flights, departures, mean_delay from {{ ref('stg_hourly_departures') }}
)
