"""Let each commit prove which files the table has after the commit, and which commits were made before it (rule X6)."""
