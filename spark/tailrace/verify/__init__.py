"""Prove that nothing was lost or doubled, and that the answers are right (rules X6, L1, L2)."""
