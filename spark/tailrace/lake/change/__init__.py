"""Change tables to match another contract, generation or epoch, and report which readers a change affects."""
