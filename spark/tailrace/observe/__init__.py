"""What people and their tools look at: what runs tell of themselves, and the paper's plot of panes."""
