{{ restatements_of('ad_bills', 'day') }}
