"""The error for problems with tools other than Python: no suitable Java, or a missing or wrong jar."""

from __future__ import annotations

from tailrace.model.base.errors import TailraceError


class ToolchainError(TailraceError, RuntimeError):
    """Raised if Java or a jar is missing or wrong.

    The message names the tool, and the command that corrects the problem.
    """
