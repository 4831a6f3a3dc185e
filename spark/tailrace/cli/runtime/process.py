"""Speed up the start of a process that runs a single command.

In a process that also runs other code, the functions of this module change nothing.
"""

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
"""The number of new objects after which Python collects garbage. Imports create a million objects, but hardly any
garbage.
"""

UNUSED = ("strictyaml", "pyiceberg.expressions.parser")
"""Modules that pyiceberg imports but does not need to read a lake. Each module is loaded only on its first use."""


def claim_process() -> None:
    """Record that this process runs a single command, and make garbage collection less frequent."""
    _state["own"] = True
    gc.set_threshold(SELDOM)


def skip_unused_imports() -> None:
    """Skip imports that a short command does not need. These imports would take a third of the command's time.

    Hide numpy from pyarrow, which imports numpy only to be ready to make numpy arrays. Hide pandas from pyarrow, which
    imports pandas only to check whether an object is a DataFrame; the import of pandas takes 0.8 seconds of a command's
    2 seconds. Load the modules that pyiceberg seldom uses only on their first use. A module that is already loaded is
    not changed. In a process that also runs other code, this function changes nothing.
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
            # While numpy is hidden, import the modules of pyarrow with which pyiceberg reads tables, because each of
            # these modules tries to import numpy.
            import pyarrow.compute
            import pyarrow.dataset
            import pyarrow.parquet  # noqa: F401


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Make imports of a module fail during the block, as if the module were not installed."""
    finder = _Without(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Later(ModuleType):
    """A module that is loaded when one of its attributes is first read.

    Unlike with `importlib.util.LazyLoader`, an import statement alone does not load the module.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _Without(MetaPathFinder):
    """An import finder that makes the import of one module fail, as if the module were not installed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.name:
            raise ModuleNotFoundError("not needed by this command", name=fullname)
        return None
