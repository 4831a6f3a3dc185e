"""Draw the panes of a table or of a simulation in the style of the Dataflow paper."""
