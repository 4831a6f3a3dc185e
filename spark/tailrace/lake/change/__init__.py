"""Change tables to another contract, generation or epoch, and say who is affected."""
