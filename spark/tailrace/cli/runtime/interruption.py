"""Handle Ctrl-C and SIGTERM in a command that runs until it receives one of these signals."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

from tailrace.cli.terminal.usage import ExitStatus


class Stop:
    """A handler for Ctrl-C and SIGTERM.

    The handler records the first signal; a second signal ends the process at once.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Install this handler for SIGINT and SIGTERM.

        Call this method again after Spark has started, because Spark replaces the handlers.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.signal(number, self._interrupt)
            self._before.setdefault(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
            return
        # No cleanup runs here, because it could take long and is not needed: the next start continues after the last
        # complete epoch (rule X2), and the JVM ends when its standard input closes.
        cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
        os.write(2, f"{cursor}stopped at once; the next start goes on after the last whole epoch\n".encode())
        os._exit(ExitStatus.INTERRUPTED)

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def name(self) -> str:
        """The name of the recorded signal, for messages: "Ctrl-C" or "SIGTERM"."""
        return "Ctrl-C" if self.signal is signal.SIGINT else "SIGTERM"
