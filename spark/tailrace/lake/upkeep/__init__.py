"""Maintain a lake's tables: find the maintenance that keeps tables small, and clean up after crashed writers."""
