"""Windows, which define where in event time results are computed: windowings, calendar windows and panes."""
