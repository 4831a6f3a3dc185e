"""The read-only page on a lake: it answers from the tables, by bounded reads, and writes nothing."""
