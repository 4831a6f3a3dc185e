"""Run streams. One kind of stream lands a source and folds it; the other kind folds what another process has landed."""
