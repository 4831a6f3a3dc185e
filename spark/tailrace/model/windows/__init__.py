"""Windows, which say where in event time: windowings, calendars, and the panes that windows fire."""
