"""Windows, which say where in event time results are computed: windowings, calendars and panes."""
