"""What a definition does when it runs: `stages` are its types, `builder` makes them, `explainer` shows them."""
