"""Load the definitions that a command's arguments name."""

from tailrace.plan.loader import load, load_all, load_any, load_ranged

__all__ = ["load", "load_all", "load_any", "load_ranged"]
