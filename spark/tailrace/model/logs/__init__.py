"""Logs, as users declare them: their columns, how watermarks follow their records, and logs derived from other logs."""
