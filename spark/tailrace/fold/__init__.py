"""Run a stream's definitions epoch by epoch: the fold of one definition, the group of all folds, and their engines."""
