"""The loaders of the definitions that a command is given."""

from tailrace.plan.loader import load, load_all, load_any, load_ranged

__all__ = ["load", "load_all", "load_any", "load_ranged"]
