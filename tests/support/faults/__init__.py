"""Streams that die, race and meet faults, in processes and in memory."""
