"""Maintain tables: find the work that is needed to keep them small, and clean up after writers that have crashed."""
