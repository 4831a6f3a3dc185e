{{ config(severity='warn') }}
-- By day the panes add up to the current answers. Beside a stream these follow some epochs behind: a warning, then.
select origin, day from (
    select origin, day, flights, departures from {{ ref('daily_departures') }} where windows > 0
    except
    select origin, cast(window_start as date), sum(flights), sum(departures)
    from {{ ref('stg_hourly_departures') }} group by all
)
