"""Access the catalog: its tables, conditional commits, and notices about events in the tables."""
