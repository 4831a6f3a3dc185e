-- Ads that few see to the end, and what their views cost.
select u.ad, cast(u.window_start as date) as day, u.hours, u.views, u.whole, u.whole / u.views as share_whole,
    v.advertiser, v.cost
from {{ source('tailrace', 'unpopular_ads') }} as u
left join (
    select ad, max(advertiser) as advertiser, cast(at as date) as day, sum(watched * rate) as cost
    from {{ source('tailrace', 'ad_views') }}
    group by ad, cast(at as date)
) as v on v.ad = u.ad and v.day = cast(u.window_start as date)
