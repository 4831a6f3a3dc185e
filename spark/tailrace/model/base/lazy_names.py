"""Import the public names of a package only when they are used, because some of their modules take long to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the function `__getattr__` of a package, which imports a name from its module.

    `modules` gives for each public name the module that defines it.

    >>> lazy_names("here", {"pi": "math"})("pi")
    3.141592653589793
    """

    def find(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return find
