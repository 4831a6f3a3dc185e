select {{ plain_columns('hourly_departures') }}
from {{ source('tailrace', 'hourly_departures') }}
