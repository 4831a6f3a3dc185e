"""Define the error of the tools beside Python: no suitable Java, or a missing or wrong jar."""

from __future__ import annotations

from tailrace.model.base.errors import TailraceError


class ToolchainError(TailraceError, RuntimeError):
    """Java or a jar is missing or wrong. The message says which, and the command that mends it."""
