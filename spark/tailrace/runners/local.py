"""Run jobs on this machine: in the calling process if DuckDB can compute them, else in a shared warm Spark session.

A new Spark session takes about ten seconds to start. A separate process, the worker, therefore keeps a warm session for
all runs. The first run that finds no worker starts a worker, and the worker ends after a while without runs. Worker and
client exchange lines of JSON over a Unix socket in a folder that only the user can read; the worker cancels the runs of
a client that disconnects. There is one worker for each combination of lake, definition folder, and installation. If a
worker's code has changed on disk since the worker was started, the worker reports the change and ends after its current
runs, and a new worker is started.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailrace
from tailrace.model.base.errors import TailraceError, line_of
from tailrace.runners.in_process import AT_ONCE, duckdb_suffices, load_job, run_backfill
from tailrace.runners.jobs import BackfillJob, Cancelled, JobOutcome, MaintainJob, RunnerError, StreamJob, refusal
from tailrace.runners.keeper import Keeper, LocalStreams
from tailrace.runners.processes import (
    find_error,
    is_running,
    private_folder,
    reap_started,
    start_detached,
    wait_for,
)
from tailrace.settings import Place, Settings, setting_text, variable

if TYPE_CHECKING:
    from tailrace.engines.session_protocol import Session

STARTING = 60.0
"""The maximum time in seconds until a new worker accepts connections. The worker's Spark session starts later."""

_ENDING = 20.0
"""The maximum time in seconds that a worker has to end its runs when it is stopped."""

_TRIES = 5
"""The maximum number of attempts to send a run to a worker. A worker that is about to end refuses the run."""


class Local(LocalStreams):
    """The runner for jobs on this machine."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._connections: set[socket.socket] = set()
        self._sessions: set[Session] = set()
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._cancelled = False

    def backfill(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome]:
        """Run a backfill in this process if DuckDB can compute it, otherwise in the worker process.

        The worker is started if no worker is running.
        """
        with self._turns:
            outcomes = self._here(job, tell)
        return JobOutcome.all_of(self._answer("backfill", job, tell)) if outcomes is None else outcomes

    def _here(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome] | None:
        """Run a backfill in this process.

        Returns None if the backfill needs Spark, or if it needs more memory and disk space than DuckDB may use.
        """
        from tailrace.engines.duckdb.database.connection import RoomError

        mine: list[Session] = []

        def begun(session: Session) -> None:
            mine.append(session)
            self._sessions.add(session)
            self._check()

        self._check()
        try:
            definition = load_job(job)
            if not duckdb_suffices(self.settings, job, definition):
                return None
            return run_backfill(self.settings, job, definition, tell, begun, spark=False)
        except RoomError as error:
            tell(f"{line_of(error)}: Spark takes it")
            return None
        except RunnerError:
            raise
        except TailraceError as error:
            self._check()
            raise refusal(error) from error
        finally:
            self._sessions.difference_update(mine)

    def _check(self) -> None:
        if self._cancelled:
            raise Cancelled("cancelled: nothing more is committed")

    def maintain(self, job: MaintainJob, tell: Callable[[str], None]) -> dict[str, Any]:
        """Run maintenance in the worker process. The worker is started if no worker is running."""
        return self._answer("maintain", job, tell)

    def _keeper(self, job: StreamJob) -> Keeper:
        command = [sys.executable, "-m", "tailrace.cli.main", "stream", *job.words]
        place = private_folder() / f"stream-{self._of(Path(job.definitions[0]))}-{job.name}"
        return Keeper(place, command, self._environment)

    def _answer(self, what: str, job: BackfillJob | MaintainJob, tell: Callable[[str], None]) -> dict[str, Any]:
        for _ in range(_TRIES):
            place = self._socket(job)
            with closing(self._connect(place, tell)) as connection:
                self._connections.add(connection)
                try:
                    answer = self._ask(connection, {what: job.model_dump()}, tell)
                finally:
                    self._connections.discard(connection)
            if answer is not None:
                return answer
        raise RunnerError("the workers end as soon as they are asked: does the code of the definition keep changing?")

    def cancel(self) -> None:
        self._cancelled = True
        for session in tuple(self._sessions):
            session.cancel()
        for connection in tuple(self._connections):
            # Closing the connection wakes the thread that waits for the worker's answer, and tells the worker that the
            # client has gone.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _ask(
        self, connection: socket.socket, request: dict[str, Any], tell: Callable[[str], None]
    ) -> dict[str, Any] | None:
        """Send a request to the worker and return the worker's answer.

        Returns None if the worker has refused the request because the worker is about to end.
        """
        taken = False
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            for line in connection.makefile("rb"):
                taken = True
                match json.loads(line):
                    case {"doing": str(doing)}:
                        tell(doing)
                    case {"done": dict(done)}:
                        return done
                    case {"stale": True}:
                        return None
                    case {"failed": str(failed), "again": bool(again)}:
                        raise RunnerError(failed, again=again)
        except (OSError, ValueError):
            # The worker has ended or closed the connection.
            pass
        self._check()
        if not taken:
            return None
        raise RunnerError("the worker died while it ran: run it again; what was committed is whole")

    def _connect(self, place: Path, tell: Callable[[str], None]) -> socket.socket:
        """Connect to the worker. Start a worker first if no worker is running."""
        self._check()
        if (connection := _connection(place)) is not None:
            return connection
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have started the worker in the meantime.
            if (connection := _connection(place)) is not None:
                return connection
            tell("starting a Spark session that later runs share")
            return self._start_worker(place)

    def _start_worker(self, place: Path) -> socket.socket:
        output = place.with_suffix(".out")
        with output.open("wb") as out:
            command = [sys.executable, "-m", "tailrace.cli.main", "worker", str(place)]
            process = start_detached(command, out, self._environment)
        # The wait also ends if the worker process has failed, because `poll` then returns the exit status of the
        # process.
        found = wait_for(lambda: _connection(place) or process.poll(), STARTING)
        if isinstance(found, socket.socket):
            return found
        with suppress(ProcessLookupError):
            process.kill()
        reason = find_error(output.read_text(errors="replace")) or "it said nothing"
        raise RunnerError(f"the worker did not start: {reason}")

    @property
    def _environment(self) -> dict[str, str]:
        """The environment variables for a new process: the variables of this process, and variables for the settings.

        Settings that have their default value are left out, except for the warehouse and the folder of jars. All paths
        in the settings are absolute.
        """
        values = self.settings.model_dump(exclude_none=True, exclude_defaults=True)
        paths = {"warehouse": self.settings.warehouse, "jars": self.settings.jars}
        return os.environ | {variable(name): setting_text(value) for name, value in (values | paths).items()}

    def _socket(self, job: BackfillJob | MaintainJob) -> Path:
        return private_folder() / f"{self._of(Path(job.definition).parent)}.sock"

    def _of(self, definitions: Path) -> str:
        """Return a digest of the settings, the definitions and the installation.

        The names of the files of workers and streams contain this digest.
        """
        parts = (self.settings.model_dump_json(), str(definitions), sys.executable, str(Path(tailrace.__file__).parent))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @staticmethod
    def stop_all(warehouse: Place) -> int:
        """Stop all workers of a lake and wait until they have ended; return how many workers were stopped."""
        return sum(_stop_worker(place, warehouse) for place in private_folder().glob("*.sock"))


def _stop_worker(place: Path, warehouse: Place) -> bool:
    """Stop the worker that listens at a socket if the worker belongs to this lake, and wait for its end.

    Returns True if there was such a worker.
    """
    connection = _connection(place)
    if connection is None:
        return False
    with closing(connection):
        connection.sendall(json.dumps({"stop": str(warehouse)}).encode() + b"\n")
        answer = json.loads(connection.makefile("rb").readline() or b"{}")
    pid = answer.get("pid")
    if pid is None:
        return False
    if wait_for(lambda: None if is_running(pid) else True, _ENDING, pause=0.1) is None:
        os.kill(pid, signal.SIGKILL)
    reap_started()
    return True


def _connection(place: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(place))
    except OSError:
        connection.close()
        return None
    return connection
