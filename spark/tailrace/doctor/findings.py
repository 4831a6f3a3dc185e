"""The findings of `tailrace doctor`, and the form of a check.

A check returns a short text on the present state, or raises `WrongError` or `UnseenError`. Any other error is also
reported as a fault, so no check keeps the others from running.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tailrace.lake.schema.lake_errors import CatalogError
from tailrace.model.base.errors import TailraceError, line_of

State = Literal["ok", "wrong", "not looked at"]


@dataclass(frozen=True)
class Finding:
    """The result of a check: `found` is the present state, or why the check was skipped; `mend` is the advice."""

    name: str
    state: State
    found: str
    mend: str = ""


class WrongError(TailraceError, RuntimeError):
    """A fault of the installation: `found` describes it, and `mend` says how to mend it."""

    def __init__(self, found: str, mend: str) -> None:
        self.found, self.mend = found, mend
        super().__init__(f"{found}: {mend}" if mend else found)


class UnseenError(WrongError):
    """A check that cannot or need not be made: `found` is the reason, and `mend` says how to enable the check."""


def run_check(name: str, check: Callable[[], str], mend: str = "") -> Finding:
    """Run a check and return its finding. `mend` is the advice for unexpected errors."""
    try:
        return Finding(name, "ok", check())
    except UnseenError as seen:
        return Finding(name, "not looked at", seen.found, seen.mend)
    except (WrongError, CatalogError) as seen:
        return Finding(name, "wrong", seen.found, seen.mend)
    except Exception as error:
        return Finding(name, "wrong", line_of(error), permission_advice(error) or mend)


def permission_advice(error: Exception) -> str:
    """Name the permission that a service of AWS refused, by the message of the error; empty for other errors."""
    found = re.search(r"not authorized to perform: ([\w-]+:\w+)(?: on resource: (\S+))?", str(error))
    return f"allow {found[1]}{f' on {found[2]}' if found[2] else ''} to who runs this" if found else ""
