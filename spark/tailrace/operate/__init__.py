"""Change and tidy tables beside running streams: a changed definition, maintenance, a quicker start."""
