"""The result of an audit: its checks, and what each found."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.engines.choose import EngineChoice

SHOWN = 5
"""The maximum number of differences that a check quotes."""


@dataclass(frozen=True)
class Check:
    """The result of one check: whether it holds, and what was found."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Audit:
    """The result of an audit. `counts` are of the log's records and of the definition's rows."""

    counts: dict[str, int]
    checks: tuple[Check, ...]
    engine: EngineChoice

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)
