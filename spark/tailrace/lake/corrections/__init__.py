"""Find the windows and rows that lack a correction of their inputs, and the backfills that would correct them."""
