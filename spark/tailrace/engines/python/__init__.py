"""What a definition's own Python does with Arrow tables, whichever engine hands them over. Knows no engine."""
