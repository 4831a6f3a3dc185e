"""What the command does to its own process before it looks at tables, and does not do to a process it is called in."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_state = {"own": False}


def own() -> None:
    """Say that this process is the command's alone; the console script does."""
    _state["own"] = True


def without_pandas() -> None:
    """Let pyarrow find no pandas, which it would import (0.8 of 2 s) only to ask whether it is handed a DataFrame.

    For commands that read a few rows and end. It does nothing in a process that others use, or where pandas is loaded.
    """
    if _state["own"] and "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas(MetaPathFinder):
    """Says of pandas that it is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed by this command", name=fullname)
        return None
