"""The results of `tailrace doctor`'s checks, and the interface of a check.

A check is a function that returns a short text on the present state, or raises `WrongError` or `UnseenError`. If a
check raises an unexpected error, this error is also reported as a fault, and the other checks still run.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from tailrace.model.base.errors import RemedyError, line_of

State = Literal["ok", "wrong", "not looked at"]


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    `found` describes the present state, or why the check was skipped; `mend` is advice to the user.
    """

    name: str
    state: State
    found: str
    mend: str = ""


class WrongError(RemedyError, RuntimeError):
    """Raised by a check that finds a fault. `found` describes the fault, and `mend` says how to correct it."""


class UnseenError(WrongError):
    """Raised by a check that is skipped.

    `found` is the reason why the check was skipped, and `mend` says what to do so that the check can be made.
    """


_FAULTS = tomllib.loads(files(__package__).joinpath("faults.toml").read_text("utf-8"))


def fault(name: str, remedy: str = "", **values: object) -> WrongError:
    """Create the error for a fault in `faults.toml`, with these values for its placeholders.

    If `remedy` is not empty, it takes the place of the fault's usual remedy.
    """
    found, mend = (_FAULTS[name][part].format(**values) for part in ("found", "mend"))
    return WrongError(found, remedy or mend)


def run_check(name: str, check: Callable[[], str], mend: str = "") -> Finding:
    """Run a check and return its finding. `mend` is the advice if the check raises an unexpected error."""
    try:
        return Finding(name, "ok", check())
    except UnseenError as seen:
        return Finding(name, "not looked at", seen.found, seen.mend)
    except RemedyError as seen:
        return Finding(name, "wrong", seen.found, seen.mend)
    except Exception as error:
        return Finding(name, "wrong", line_of(error), permission_advice(error) or mend)


def permission_advice(error: Exception) -> str:
    """Return advice that names the permission that AWS refused, or an empty text if the error has another cause."""
    found = re.search(r"not authorized to perform: ([\w-]+:\w+)(?: on resource: (\S+))?", str(error))
    return f"allow {found[1]}{f' on {found[2]}' if found[2] else ''} to who runs this" if found else ""
