"""Define the error for wrong arguments, and export the exit statuses of commands."""

from __future__ import annotations

from tailrace.model.base.errors import TailraceError
from tailrace.plan.loader import LoadError
from tailrace.runners.exit_status import MEANING, ExitStatus, status_of

__all__ = ["MEANING", "ExitStatus", "LoadError", "UsageError", "status_of"]


class UsageError(TailraceError, ValueError):
    """Raised if an argument of a command is invalid, or cannot be combined with another argument."""
