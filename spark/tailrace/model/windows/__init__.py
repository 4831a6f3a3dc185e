"""Say where in event time: windows, calendars, and the panes that come of them."""
