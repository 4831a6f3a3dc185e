"""Infer a definition from a sample of a source: `tailrace infer`."""
