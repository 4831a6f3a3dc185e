"""Change tables, tell a stream something, and make up logs."""
