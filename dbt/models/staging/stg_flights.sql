select {{ plain_columns('flights') }}, _arrival as arrived
from {{ source('tailrace', 'flights') }}
