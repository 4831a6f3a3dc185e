"""Fold epochs: the running fold of one definition, the group of all folds, and the engine of each."""
