"""Fold epochs: one definition's running fold, the group of them, and the engine that each is on."""
