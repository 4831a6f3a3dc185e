"""Bring tables to another contract, generation or epoch, and say whom that hurts."""
