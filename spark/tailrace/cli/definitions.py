"""The definitions that a command is told of."""

from tailrace.plan.loading import load, load_all, load_any

__all__ = ["load", "load_all", "load_any"]
