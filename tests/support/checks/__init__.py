"""Questions that are asked of a run, as functions: the laws, the ledgers and the answers."""
