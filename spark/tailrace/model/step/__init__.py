"""Hold what an epoch does to windows and keys: the reference that every execution is held against."""
