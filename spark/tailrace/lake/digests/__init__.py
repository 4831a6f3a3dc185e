"""Let a commit prove which files the table holds after it, and which commits came before it (rule X6)."""
