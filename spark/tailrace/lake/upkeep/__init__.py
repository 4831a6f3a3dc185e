"""Maintain tables: find what they need to stay small, and clean up after dead writers."""
