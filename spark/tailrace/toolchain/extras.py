"""The extras of the package: which extra installs a module, and how to install it.

`extras.toml` lists the extras. A test compares this list with `pyproject.toml` and with the page on installing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec

from tailrace.toolchain.tool_errors import ToolchainError


class ExtraMissingError(ToolchainError, ImportError):
    """Raised if a package is not installed that an extra of Tailrace would install."""


@dataclass(frozen=True)
class Extra:
    """An extra: its name, the work that it is for, and the modules that it installs."""

    name: str
    work: str
    modules: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that installs the extra."""
        return f"pip install 'tailrace[{self.name}]'"


@cache
def extras() -> Mapping[str, Extra]:
    """Return all extras by name."""
    listed = tomllib.loads(files(__package__).joinpath("extras.toml").read_text("utf-8"))
    return {name: Extra(name, one["work"], tuple(one["modules"])) for name, one in listed.items()}


def extra_of(module: str) -> Extra | None:
    """Return the first extra that installs a module, or None if no extra installs it.

    >>> extra_of("pyspark.sql.functions").command
    "pip install 'tailrace[spark]'"
    >>> extra_of("json") is None
    True
    """
    top = module.partition(".")[0]
    return next((extra for extra in extras().values() if top in extra.modules), None)


def require_extras(*names: str) -> None:
    """Raise an `ExtraMissingError` that names all extras that are not installed, if there are any."""
    lacking = [name for name in names if any(find_spec(module) is None for module in extras()[name].modules)]
    if lacking:
        one = len(lacking) == 1
        raise ExtraMissingError(
            f"this needs the extra{'' if one else 's'} {', '.join(f'`{name}`' for name in lacking)}, which "
            f"{'is' if one else 'are'} not installed: pip install 'tailrace[{','.join(lacking)}]'"
        )


def explain_import(error: ImportError) -> ExtraMissingError | None:
    """Return an error that names the extra to install, or None if no extra would install the missing module."""
    extra = extra_of(error.name or "")
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return None
    named = (error.name or "").partition(".")[0]
    return ExtraMissingError(f"{named} is not installed; this needs the extra `{extra.name}`: {extra.command}")
