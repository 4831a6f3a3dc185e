"""Read the remedies for faults that an audit finds from `remedies.toml`.

A failed check is shown together with the command that repairs it.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

_TEXTS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("remedies.toml").read_text("utf-8"))

_OTHER: str = _TEXTS["other"].strip()

REMEDIES: Mapping[str, str] = {check: one["text"].strip() for one in _TEXTS["remedy"] for check in one["checks"]}
"""A mapping from a check's name to the remedy for a failure of this check.

For checks that are not listed, the remedy is a restore.
"""


def remedy(check: str, definition: str) -> str:
    """Return the remedy for a check that failed; `definition` is the definition's name on the command line."""
    return REMEDIES.get(check, _OTHER).format(definition=shlex.quote(definition))
