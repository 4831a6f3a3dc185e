"""Run streams: one that lands a source and folds it, and one that folds what another landed."""
