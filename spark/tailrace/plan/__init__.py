"""Plans of definitions. `stages` has the parts of a plan, `plans` creates plans, and `explainer` presents plans."""
