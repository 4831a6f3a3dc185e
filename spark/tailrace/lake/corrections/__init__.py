"""Find the windows and rows that lack a correction of their inputs, and the backfill that brings it to them."""
