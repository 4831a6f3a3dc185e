"""Handle the special cases of files in landing folders: unreadable files, skipped files, and changes."""
