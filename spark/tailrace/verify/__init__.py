"""Check that no record was lost or counted twice, and that the answers are correct (rules X6, L1, L2)."""
