"""Give the guided tour."""
