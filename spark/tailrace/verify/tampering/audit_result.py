"""Define the result of an audit: its checks, with the details that each check found."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.engines.choose import EngineChoice

SHOWN = 5
"""The maximum number of differences that one check shows."""


@dataclass(frozen=True)
class Check:
    """The result of one check: whether the check passed, and the details that the check found."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Audit:
    """The result of an audit; `counts` has the numbers of the log's records and of the definition's rows."""

    counts: dict[str, int]
    checks: tuple[Check, ...]
    engine: EngineChoice

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)
