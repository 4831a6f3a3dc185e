"""Where a record is: the windows, panes, answers and rows that it is in, read from the ledgers without an engine."""
