"""Logs as users declare them: their columns, their watermark strategies, and logs that are derived from other logs."""
