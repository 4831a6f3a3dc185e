"""Run streams: a stream that lands a source and folds it, and a stream that folds what another process landed."""
