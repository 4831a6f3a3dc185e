with panes as (
    select origin, window_start, window_end, generation, epoch, pane_index, timing, writer, processing_time, watermark,
        not retraction as stands, flights, departures, mean_delay,
        -- A retraction shares the version of the pane that takes its place: alone it takes the window back for good.
        row_number() over (
            partition by origin, window_start, window_end, generation, epoch, pane_index order by retraction
        ) as place
    from {{ source('tailrace', 'hourly_departures__ledger') }}
    where kind = 'pane'
),
published as (
    select *,
        row_number() over answer as version,
        lag(if(stands, flights, null)) over answer as flights_before,
        lag(if(stands, departures, null)) over answer as departures_before,
        lag(if(stands, mean_delay, null)) over answer as mean_delay_before,
        row_number() over (
            partition by origin, window_start, window_end order by generation desc, epoch desc, pane_index desc
        ) = 1 as current
    from panes
    where place = 1
    window answer as (partition by origin, window_start, window_end order by generation, epoch, pane_index)
),
runs as (
    select generation, max(reason) as reason
    from {{ source('tailrace', 'hourly_departures__runs') }}
    where kind = 'backfill'
    group by generation
)
select
    p.origin, p.window_start, p.window_end, p.version, p.current, p.processing_time as published_at,
    if(p.stands, p.flights, null) as flights, p.flights_before,
    if(p.stands, p.departures, null) as departures, p.departures_before,
    if(p.stands, p.mean_delay, null) as mean_delay, p.mean_delay_before,
    p.timing,
    case
        when p.writer = 'backfill' then concat('backfill', coalesce(concat(': ', r.reason), ''))
        when not p.stands then 'taken back'
        when p.timing = 'early' then 'more was known before the hour was complete'
        when p.timing = 'on_time' then 'the hour was complete by the watermark'
        else 'records came late'
    end as why,
    p.writer, p.generation, p.epoch
from published as p
left join runs as r on r.generation = p.generation
