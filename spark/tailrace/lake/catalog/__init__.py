"""Access the catalog: look up tables, make conditional commits, and define the notices about table events."""
