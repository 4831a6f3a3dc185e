"""Run streams as local processes that outlive the process that starts them, and find the streams that are running.

A keeper process starts the stream, waits for the stream's end, and records the exit status and the reason. The keeper
and the stream hold a lock on a file. A process that cannot take the lock knows that the stream is running. The
operating system frees the lock once the keeper and the stream have ended, for whatever reason.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from tailrace.runners.exit_status import ExitStatus
from tailrace.runners.jobs import RunnerError, StreamJob, StreamState
from tailrace.runners.processes import (
    find_error,
    is_running,
    private_folder,
    reap_started,
    start_detached,
    wait_for,
)
from tailrace.settings import PREFIX, Place

FINAL = (ExitStatus.USAGE, ExitStatus.GAVE_WAY)
"""The exit statuses of a stream for which a restart would not help."""

STARTING = 60.0
"""The maximum time in seconds that a keeper takes to start its stream."""

SEEN = 5.0
"""A stream counts as started if it is still running after this time, in seconds."""

STOPPING = 120.0
"""The maximum time in seconds that a stream takes to end at an epoch boundary."""


@dataclass(frozen=True)
class Keeper:
    """The keeper of one stream. `place` is the path of the stream's lock, output and state files, without suffix."""

    place: Path
    command: Sequence[str]
    environment: Mapping[str, str]

    def keep_running(self, tell: Callable[[str], None], *, anew: bool) -> StreamState:
        """Start the stream unless it is running, and return its state.

        Raises `RunnerError` in the same cases as `Runner.stream`.
        """
        if anew:
            self.end(tell)
        with self._lock(patient=True) as lock:
            if lock is None:
                if (pid := self._pid()) is None:
                    raise RunnerError("the stream has just ended: ask again")
                return StreamState(state="running", pid=pid, since=_read(self._state).get("since"))
            ended = None if anew else self._end_state()
            if ended is not None and ended.get("by_hand"):
                return StreamState(state="stopped")
            if ended is not None and ended["status"] in FINAL and not ended.get("told"):
                # Raise the error for an ended stream only once, so that the next call starts the stream again.
                _write(self._state, ended | {"told": True})
                raise RunnerError(f"the stream ended: {ended['said']}", again=False)
            tell(f"starting a stream: its output is in {self._out}")
            self._start(lock)
        pid, reason = self._await_start(), None if ended is None else ended["said"]
        return StreamState(state="started", pid=pid, since=_read(self._state).get("since"), ended=reason)

    def stop(self, tell: Callable[[str], None]) -> StreamState:
        """Stop the stream at an epoch boundary if it is running, and record that a user stopped it."""
        self.end(tell)
        _write(self._state, {"status": 0, "said": "stopped by hand", "by_hand": True})
        return StreamState(state="stopped")

    def end(self, tell: Callable[[str], None]) -> None:
        """End the stream at an epoch boundary if it is running; the next call of `keep_running` starts it again.

        Raises `RunnerError` if the stream does not end within `STOPPING` seconds.
        """
        if self._is_free():
            return
        tell("stopping the stream at the next epoch's boundary")
        if (pid := self._pid()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if wait_for(lambda: self._is_free() or None, STOPPING, pause=0.2) is None:
            raise RunnerError(f"the stream has not ended in {STOPPING:.0f} s: see {self._out}")

    def _start(self, lock: BinaryIO) -> None:
        self._state.unlink(missing_ok=True)
        keeper = [sys.executable, "-m", "tailrace.runners.keeper", str(self.place), *self.command]
        with self._out.open("ab") as out:
            start_detached(keeper, out, self.environment, pass_fds=[lock.fileno()])

    def _await_start(self) -> int | None:
        """Wait until the stream counts as started, and return its process id.

        Raises `RunnerError` if the stream ends before it counts as started.
        """
        until, pid = time.monotonic() + STARTING, None
        while time.monotonic() < until:
            reap_started()
            if self._is_free():
                ended = self._end_state() or {"said": "it said nothing", "status": None}
                raise RunnerError(f"the stream ended: {ended['said']}", again=ended["status"] != ExitStatus.USAGE)
            if pid is None and (pid := _read(self._state).get("pid")) is not None:
                until = time.monotonic() + SEEN
            time.sleep(0.1)
        return pid or self._pid()

    def _end_state(self) -> dict[str, Any] | None:
        """Return the exit status of the last stream and the reason why it ended, or None if there was no stream.

        If the keeper was killed, it recorded no exit status, and the status in the result is None.
        """
        state = _read(self._state)
        if state and "status" not in state:
            return {"status": None, "said": "it was killed"}
        return state or None

    def _pid(self) -> int | None:
        """Return the process id of the running stream, or None if the stream has ended in the meantime."""
        state = wait_for(lambda: _read(self._state) or None, STARTING)
        if state is None:
            raise RunnerError(
                f"a stream runs, and {self._state} does not say which: remove the files beside it, and stop the stream"
            )
        pid: int | None = state.get("pid")
        return pid

    def _is_free(self) -> bool:
        with self._lock() as lock:
            return lock is not None

    @contextmanager
    def _lock(self, *, patient: bool = False) -> Iterator[BinaryIO | None]:
        """Take the stream's lock and yield the lock file; yield None if the stream is running.

        If `patient` is True and the stream has ended, wait until its keeper has ended, too.
        """
        until = time.monotonic() + STARTING
        with self.place.with_suffix(".lock").open("ab") as lock:
            while not _try_lock(lock):
                if not patient or is_running(_read(self._state).get("pid")) or time.monotonic() > until:
                    yield None
                    return
                time.sleep(0.02)
            yield lock

    @property
    def _state(self) -> Path:
        return self.place.with_suffix(".json")

    @property
    def _out(self) -> Path:
        return self.place.with_suffix(".out")


class LocalStreams:
    """A mix-in for runners that run streams as processes on this machine."""

    def stream(self, job: StreamJob, tell: Callable[[str], None], *, anew: bool = False) -> StreamState:
        """Start the stream in another process, unless the stream is already running."""
        return self._keeper(job).keep_running(tell, anew=anew)

    def stop_stream(self, job: StreamJob, tell: Callable[[str], None]) -> StreamState:
        """Stop the stream at an epoch boundary if it is running; the stream then stays stopped."""
        return self._keeper(job).stop(tell)

    @abstractmethod
    def _keeper(self, job: StreamJob) -> Keeper:
        """Return the keeper of the process that runs this stream."""


def end_all(warehouse: Place) -> int:
    """End all streams of a lake that run on this machine, in parallel; return how many streams were ended."""
    states = {file: _read(file) for file in private_folder().glob("*.json")}
    keepers = [
        Keeper(file.with_suffix(""), (), {})
        for file, state in states.items()
        if "pid" in state and state.get("lake") == str(warehouse)
    ]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda keeper: keeper.end(lambda doing: None), keepers))
    return len(keepers)


def _try_lock(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: Path) -> dict[str, Any]:
    """Read a stream's state from its state file. The result is empty if the file does not exist."""
    try:
        state: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return state


def _write(file: Path, state: Mapping[str, Any]) -> None:
    """Write a stream's state to its file atomically."""
    whole = file.with_suffix(".new")
    whole.write_text(json.dumps(state))
    whole.replace(file)


def keep(place: Path, command: Sequence[str]) -> int:
    """Run a stream to its end, and return the stream's exit status.

    The signals SIGTERM and SIGINT to this process are forwarded to the stream. The reason why the stream ended is
    recorded.
    """
    out, state = place.with_suffix(".out"), place.with_suffix(".json")
    start = out.stat().st_size if out.exists() else 0
    # The stream's process inherits the open lock file, so the stream also holds the lock.
    process = subprocess.Popen(command, close_fds=False)
    _write(state, {"pid": process.pid, "lake": os.environ.get(f"{PREFIX}WAREHOUSE", ""), "since": time.time()})

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    status = process.wait()
    with out.open("rb") as output:
        output.seek(start)
        reason = find_error(output.read().decode(errors="replace")) or "it said nothing"
    _write(state, {"status": status, "said": "it was killed" if status < 0 else reason})
    return status


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:]))
