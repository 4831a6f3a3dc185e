"""Commands that change tables, send messages to a running stream, or make up logs."""
