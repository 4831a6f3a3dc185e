"""Find the maintenance that tables need to stay small, and the leftovers of dead writers."""
