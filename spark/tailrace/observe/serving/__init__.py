"""The read-only page on a lake: what a browser asks for is read from the tables, bounded, and nothing is written."""
