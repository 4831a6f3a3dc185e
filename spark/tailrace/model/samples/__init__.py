"""Hold definitions and records to try things on."""
