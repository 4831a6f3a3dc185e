"""Define the exit statuses of the command line, and map each error to its exit status."""

from __future__ import annotations

from enum import IntEnum

from tailrace.lake.schema.lake_errors import FencedError, OtherDefinitionError
from tailrace.model.base.errors import ClockError, TailraceError
from tailrace.toolchain.tool_errors import ToolchainError


class ExitStatus(IntEnum):
    """The exit statuses of commands. The statuses are stable: scripts and schedulers may rely on them."""

    OK = 0
    FOUND = 1
    USAGE = 2
    FAILED = 3
    GAVE_WAY = 4
    INTERRUPTED = 130


MEANING = {
    ExitStatus.OK: "done, nothing found",
    ExitStatus.FOUND: "found: an audit that does not add up, a replay that differs, a changed table, an ill setup",
    ExitStatus.USAGE: "wrong arguments, definition, settings or installation",
    ExitStatus.FAILED: "the run failed; running it again goes on where it was",
    ExitStatus.GAVE_WAY: "gave way to another stream, or to a newer backfill",
    ExitStatus.INTERRUPTED: "interrupted; a stream stops at an epoch boundary first",
}


def status_of(error: TailraceError) -> ExitStatus:
    """Return the exit status for an error: usually `USAGE` for a user's mistake and `FAILED` for a failure of the run.

    The exit status is `GAVE_WAY` if another stream has taken the lease.
    """
    if isinstance(error, FencedError):
        return ExitStatus.GAVE_WAY
    if isinstance(error, OtherDefinitionError | ToolchainError | ImportError):
        return ExitStatus.USAGE
    if isinstance(error, ClockError):
        return ExitStatus.FAILED
    return ExitStatus.USAGE if isinstance(error, ValueError) else ExitStatus.FAILED
