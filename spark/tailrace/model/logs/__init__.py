"""Logs, as users declare them: their columns, how their watermarks follow the records, and what logs are made of."""
