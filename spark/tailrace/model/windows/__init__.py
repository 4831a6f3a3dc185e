"""Windows, which define where in event time results are computed, and panes, which are the outputs of windows."""
