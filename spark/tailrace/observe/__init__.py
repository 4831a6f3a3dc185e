"""What people look at: the paper's plot of panes, and real data to look at it with."""
