-- What a day's bill was when the day was complete, and what it became.
select
    advertiser, cast(window_start as date) as day,
    max_by(owed, version) filter (where timing in ('early', 'on_time')) as owed_on_time,
    max_by(struct(owed), version).owed as owed,
    count_if(timing not in ('early', 'on_time')) as restatements,
    max(published_at) as last_published_at,
    max_by(why, version) as why
from {{ ref('bill_restatements') }}
group by advertiser, window_start
