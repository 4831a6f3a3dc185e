"""The exit statuses of the command, and the status of each error."""

from __future__ import annotations

from enum import IntEnum

from tailrace.lake.schema.lake_errors import FencedError, OtherDefinitionError
from tailrace.model.base.errors import ClockError, TailraceError
from tailrace.toolchain.tool_errors import ToolchainError


class Status(IntEnum):
    """The exit statuses of commands. They are stable: scripts and schedulers may rely on them."""

    OK = 0
    FOUND = 1
    USAGE = 2
    FAILED = 3
    GAVE_WAY = 4
    INTERRUPTED = 130


MEANING = {
    Status.OK: "done, nothing found",
    Status.FOUND: "found: an audit that does not add up, a replay that differs, a changed table, an ill setup",
    Status.USAGE: "wrong arguments, definition, settings or installation",
    Status.FAILED: "the run failed; running it again goes on where it was",
    Status.GAVE_WAY: "gave way to another stream, or to a newer backfill",
    Status.INTERRUPTED: "interrupted; a stream stops at an epoch boundary first",
}


def status_of(error: TailraceError) -> Status:
    """Return the exit status of an error: `USAGE` for what the user wrote, `FAILED` for what went wrong in the run."""
    if isinstance(error, FencedError):
        return Status.GAVE_WAY
    if isinstance(error, OtherDefinitionError | ToolchainError | ImportError):
        return Status.USAGE
    if isinstance(error, ClockError):
        return Status.FAILED
    return Status.USAGE if isinstance(error, ValueError) else Status.FAILED
