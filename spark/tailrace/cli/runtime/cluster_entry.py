"""Run a command that was submitted to a cluster, and store its output and exit status for the submitter."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from typing import Protocol, TextIO

from tailrace.cli.terminal.usage import ExitStatus

OUTCOME = "--outcome="
"""The prefix of the process's first argument. The text after the prefix is the S3 address at which the outcome of the
command is stored.
"""

_FINAL = (ExitStatus.USAGE, ExitStatus.GAVE_WAY)
"""The exit statuses that a retry would not change. For these statuses, the process exits with status 0 instead, so that
the cluster's service does not retry the command.
"""


class _Command(Protocol):
    def __call__(self, args: Sequence[str], *, prog_name: str) -> object: ...


MOST = 1_000_000
"""The number of characters to which standard output and standard error are each cut. If one of the two outputs becomes
longer than twice `MOST` characters, only its last `MOST` characters are kept. Without this limit, the output of a
command that runs for weeks would fill the memory.
"""


class _Kept(io.StringIO):
    """A text stream that passes text on to the stream `to`, and keeps at least the last `MOST` characters."""

    def __init__(self, to: TextIO) -> None:
        super().__init__()
        self.to = to

    def write(self, text: str) -> int:
        self.to.write(text)
        super().write(text)
        if self.tell() > 2 * MOST:
            tail = self.getvalue()[-MOST:]
            self.seek(0)
            self.truncate()
            super().write(tail)
        return len(text)

    def flush(self) -> None:
        self.to.flush()


def run_submitted(command: _Command, name: str, arguments: Sequence[str]) -> None:
    """Run `tailrace NAME ARGUMENTS` on a cluster.

    If the first argument is `--outcome=ADDRESS`, store a JSON object at this address when the command ends: `status` is
    the exit status, and `out` and `err` are the last characters of standard output and standard error.
    """
    if not arguments or not arguments[0].startswith(OUTCOME):
        command([name, *arguments], prog_name="tailrace")
        return
    from tailrace.aws.objects import put

    out, err, status = _Kept(sys.stdout), _Kept(sys.stderr), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command([name, *arguments[1:]], prog_name="tailrace")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    outcome = {"status": status, "out": out.getvalue()[-MOST:], "err": err.getvalue()[-MOST:]}
    put(arguments[0].removeprefix(OUTCOME), json.dumps(outcome))
    sys.exit(0 if status in _FINAL else status)
