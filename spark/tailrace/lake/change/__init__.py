"""Change tables to another contract, generation or epoch, and report which readers are affected."""
