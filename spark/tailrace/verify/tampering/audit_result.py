"""Define the result of an audit: its checks, with the findings of each check."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.engines.choose import EngineChoice

SHOWN = 5
"""The maximum number of differences that a check shows."""


@dataclass(frozen=True)
class Check:
    """The result of one check: whether the check holds, and what it found."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Audit:
    """The result of an audit. `counts` has the numbers of the log's records and of the definition's rows."""

    counts: dict[str, int]
    checks: tuple[Check, ...]
    engine: EngineChoice

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)
