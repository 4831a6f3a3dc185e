"""Let each commit prove which files the table has after it, and which commits were made before it (rule X6)."""
