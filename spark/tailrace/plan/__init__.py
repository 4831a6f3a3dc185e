"""The plan of a definition: `plans` makes it by the kind's home, of the parts in `stages`; `explainer` shows it."""
