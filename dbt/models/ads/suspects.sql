-- Viewers that begin more ads in a minute than a person does, and what their views cost whoever pays for them.
select a.viewer, cast(a.window_start as date) as day, a.minutes, a.most, v.views, v.advertisers, v.cost
from {{ source('tailrace', 'ad_abuse') }} as a
left join (
    select viewer, cast(at as date) as day, count(*) as views, count(distinct advertiser) as advertisers,
        sum(watched * rate) as cost
    from {{ source('tailrace', 'ad_views') }}
    group by viewer, cast(at as date)
) as v on v.viewer = a.viewer and v.day = cast(a.window_start as date)
