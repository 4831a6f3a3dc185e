"""What a commit proves of itself: the files that the table then holds, and the commits before it (rule X6)."""
