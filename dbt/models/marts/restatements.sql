{{ restatements_of('hourly_departures', 'hour') }}
