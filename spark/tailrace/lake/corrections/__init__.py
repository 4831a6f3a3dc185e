"""Which windows and rows lack a correction of what they were made of, and the backfill that brings it to them."""
