"""Executors' Python as tests look at it, or take the package away from it."""

from __future__ import annotations

from typing import Any

import pytest


def watched(patch: pytest.MonkeyPatch, owner: type, call: str) -> list[bool]:
    """Whether each call from now on gives something, or yes."""
    own, gave = getattr(owner, call), list[bool]()

    def called(*given: Any, **named: Any) -> Any:
        made = own(*given, **named)
        gave.append(made is not None and made is not False)
        return made

    patch.setattr(owner, call, called)
    return gave


def without_package(patch: pytest.MonkeyPatch, task: type) -> None:
    """Have executors fail as they unpack a task, like those that lack the package."""
    patch.setattr(task, "__reduce__", lambda one: (_missing, ()))


def _missing() -> None:
    raise ModuleNotFoundError("No module named 'tailrace'")
