select origin, window_start, window_end, event_time, behind / 1000000 as seconds_behind, reason, processing_time as judged_at
from {{ source('tailrace', 'hourly_departures__ledger') }}
where kind = 'late'
