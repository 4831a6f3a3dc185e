"""The plan of a definition: `stages` has its parts, `plans` makes it for each kind, and `explainer` shows it."""
