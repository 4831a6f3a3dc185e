"""The plan of a definition: `plan_stages` has its types, `builder` makes it, `explainer` shows it."""
