"""What the command does to its own process before it looks at tables, and does not do to a process it is called in."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_state = {"own": False}

SELDOM = 100_000
"""After how many new objects garbage is looked for: what a command imports makes a million, and leaves hardly any."""

UNUSED = ("strictyaml", "pyiceberg.expressions.parser")
"""Modules that pyiceberg imports and a look at a lake does not use; each is loaded once something of it is used."""


def own() -> None:
    """Say that this process is the command's alone; the console script does. Garbage is looked for less often then."""
    _state["own"] = True
    gc.set_threshold(SELDOM)


def looking() -> None:
    """Leave out what a command that reads a few rows and ends does not need, which is a third of its time.

    Let pyarrow find no numpy, which it would import only to be ready to make arrays of it, and no pandas, which it
    would import (0.8 of 2 s) only to ask whether it is handed a DataFrame; and let pyiceberg load what it seldom uses
    where it uses it. It does nothing in a process that others use, or where those are loaded.
    """
    if not _state["own"]:
        return
    for name in UNUSED:
        if package := name.rpartition(".")[0]:
            import_module(package)
        if name not in sys.modules:
            sys.modules[name] = _Later(name)
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Without("pandas"))
    if "numpy" not in sys.modules:
        with _without("numpy"):
            # What of it pyiceberg reads tables by; each asks for numpy.
            import pyarrow.compute
            import pyarrow.dataset
            import pyarrow.parquet  # noqa: F401


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Have nobody find a module, for as long as the block lasts."""
    finder = _Without(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Later(ModuleType):
    """A module that is loaded once something of it is asked for; `LazyLoader`'s are by each import statement."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _Without(MetaPathFinder):
    """Says of a module that it is not installed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.name:
            raise ModuleNotFoundError("not needed by this command", name=fullname)
        return None
