"""What a definition does when it runs: `plan_stages` are its types, `builder` makes them, `explainer` shows them."""
