"""Handle special cases of files in landing folders: unreadable, skipped, changed and moved files."""
