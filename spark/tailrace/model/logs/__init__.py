"""The declarations of logs: columns, watermark strategies, and logs that are derived from other logs."""
