"""`tailrace worker`: keep one Spark session running, which a scheduler's runs on this machine share
(`runners.local`).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import TYPE_CHECKING, Any, Literal

import tailrace
from tailrace.cli.commands.run.maintain import maintenance_data
from tailrace.lake.upkeep.diagnosis import explain_error
from tailrace.model.base.errors import TailraceError, line_of
from tailrace.plan.loader import load_any
from tailrace.runners.exit_status import ExitStatus
from tailrace.runners.in_process import AT_ONCE, LOADING, load_job, run_backfill
from tailrace.runners.jobs import BackfillJob, Cancelled, JobOutcome, MaintainJob, RunnerError, refusal
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.engines.session_protocol import Session


def worker(place: Path) -> None:
    """Hold a Spark session for runs that ask for it over a socket, and end when the worker is idle.

    Airflow's runs start this command automatically.
    """
    WorkerServer(place, Settings()).serve()


class LoadedFiles:
    """The files from which this process has loaded code. The modification time and the size of each file are recorded.

    Files that definitions import are included. The files of the definitions themselves are not included, because each
    run loads them again. Of the installed packages, only the package `tailrace` is included.
    """

    def __init__(self) -> None:
        self.package = str(Path(tailrace.__file__).parent)
        self.started = time.time_ns()
        self.seen: dict[str, tuple[int, int]] = {}

    def note(self) -> None:
        """Record the file of every module that this process has loaded so far."""
        for file in self._files() - self.seen.keys():
            stamp = _stamp(file)
            # If a file was written after the process started, the loaded code may be older than the file, so the file
            # counts as changed.
            self.seen[file] = stamp if stamp[0] < self.started else (0, -1)

    def have_changed(self) -> bool:
        """Return True if a file may have changed since it was loaded."""
        self.note()
        return any(_stamp(file) != stamp for file, stamp in self.seen.items())

    def _files(self) -> set[str]:
        files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
        installed = (sys.prefix, sys.base_prefix)
        return {file for file in files if file and (file.startswith(self.package) or not file.startswith(installed))}


def _stamp(file: str) -> tuple[int, int]:
    try:
        stat = os.stat(file)
    except OSError:
        return (0, -1)
    return stat.st_mtime_ns, stat.st_size


class WorkerServer(ThreadingUnixStreamServer):
    """A server that answers each connection in a separate thread."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, place: Path, settings: Settings) -> None:
        place.unlink(missing_ok=True)
        super().__init__(str(place), _Connection)
        self.place, self.settings = place, settings
        self.inode = place.stat().st_ino
        self.files = LoadedFiles()
        self.turns = threading.BoundedSemaphore(AT_ONCE)
        self.opening, self.counting = threading.Lock(), threading.Lock()
        self.busy, self.since, self.leaving = 0, time.monotonic(), False
        self.idle = settings.worker_idle.total_seconds()

    def serve(self) -> None:
        """Answer requests until a client stops the worker, or until the worker has been idle for `worker_idle`."""
        watch = threading.Thread(target=self._until_idle, daemon=True)
        watch.start()
        self.serve_forever(poll_interval=0.2)
        self.leave()
        while self.busy:
            time.sleep(0.1)
        # The worker exits without stopping Spark, because Spark ends when its standard input closes.
        os._exit(ExitStatus.OK)

    def leave(self) -> None:
        """Stop accepting requests. Runs that have already started continue to their end."""
        self.leaving = True
        with suppress(OSError):
            # A newer worker may have created its socket at this path, and that socket must not be removed.
            if self.place.stat().st_ino == self.inode:
                self.place.unlink()
        threading.Thread(target=self.shutdown, daemon=True).start()

    def _until_idle(self) -> None:
        while not self.leaving:
            time.sleep(0.5)
            with self.counting:
                self.leaving |= not self.busy and time.monotonic() - self.since > self.idle
        self.leave()

    @contextmanager
    def busy_connection(self) -> Iterator[None]:
        """Count a connection as busy during the block, so that the worker does not exit before the block ends."""
        with self.counting:
            self.busy += 1
        try:
            yield
        finally:
            with self.counting:
                self.busy, self.since = self.busy - 1, time.monotonic()

    def session(self) -> SparkSession:
        """Open a Spark session for a run. Raises `ToolchainError` if Java or a jar is missing."""
        from tailrace.engines.spark.session import open_session

        with self.opening:
            return open_session(self.settings, app="tailrace worker")


class _Connection(StreamRequestHandler):
    """A client's connection, and the run that this process executes for the client."""

    server: WorkerServer
    asker: _Asker

    def handle(self) -> None:
        with suppress(OSError), self.server.busy_connection():
            match json.loads(self.rfile.readline() or b"null"):
                case {"stop": str(warehouse)}:
                    if warehouse == str(self.server.settings.warehouse):
                        self.server.leave()
                        self._say(pid=os.getpid())
                case {"backfill": dict(asked)}:
                    self._run("backfill", asked)
                case {"maintain": dict(asked)}:
                    self._run("maintain", asked)

    def _run(self, what: Literal["backfill", "maintain"], asked: dict[str, Any]) -> None:
        if self.server.files.have_changed():
            self.server.leave()
        if self.server.leaving:
            self._say(stale=True)
            return
        self._say(doing=f"worker {os.getpid()} has it")
        self.asker = _Asker(self.connection)
        with self.server.turns:
            reply = self._answer(what, asked)
        self.asker.answered = True
        self._say(**reply)

    def _say(self, **message: Any) -> None:
        self.wfile.write(json.dumps(message).encode() + b"\n")

    def _answer(self, what: Literal["backfill", "maintain"], asked: dict[str, Any]) -> dict[str, Any]:
        try:
            if what == "maintain":
                return {"done": self._maintain(MaintainJob(**asked))}
            return {"done": self._backfill(BackfillJob.of(**asked))}
        except Exception as error:
            if not isinstance(error, TailraceError) and not _spark_lives():
                self.server.leave()
            shown = explain_error(error)
            if not isinstance(shown, TailraceError):
                return {"failed": line_of(shown), "again": True}
            failed = shown if isinstance(shown, RunnerError) else refusal(shown)
            return {"failed": str(failed), "again": failed.again}

    def _maintain(self, job: MaintainJob) -> dict[str, Any]:
        self.asker.check()
        with LOADING:
            definition = load_any(job.definition)
        from tailrace.lake.catalog.lake import Lake
        from tailrace.operate.maintenance import maintain

        done = maintain(self._spark, Lake(self.server.settings), definition, watch=self._watch_table)
        return maintenance_data(definition, done)

    def _watch_table(self, name: str) -> None:
        self.asker.check()
        self._say(doing=f"maintaining {name}")

    def _backfill(self, job: BackfillJob) -> dict[str, Any]:
        self.asker.check()
        settings, tell = self.server.settings, lambda doing: self._say(doing=doing)
        return JobOutcome.as_data(run_backfill(settings, job, load_job(job), tell, self._cancelled_with))

    def _cancelled_with(self, session: Session) -> None:
        """Arrange for the session's work to be cancelled when the client disconnects."""
        self.asker.cancel = session.cancel
        self.asker.check()

    def _spark(self) -> SparkSession:
        """Open a Spark session in which the work of this thread is cancelled when the client disconnects."""
        from tailrace.engines.spark.session import cancellable

        spark = self.server.session()
        self.asker.cancel = cancellable(spark, "a run of a scheduler")
        self.asker.check()
        return spark


class _Asker:
    """The client that requested a run. If the client disconnects before `answered` is true, `cancel` is called."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.answered = connection, False
        self.gone = threading.Event()
        self.cancel: Callable[[], object] = lambda: None
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        # The client sends no data after its request, so this read returns only when the client disconnects.
        with suppress(OSError):
            self.connection.recv(1)
        if not self.answered:
            self.gone.set()
            self.cancel()

    def check(self) -> None:
        """Raise `Cancelled` if the client has disconnected."""
        if self.gone.is_set():
            raise Cancelled("cancelled")


def _spark_lives() -> bool:
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    try:
        return context is None or not context._jsc.sc().isStopped()
    except Exception:
        return False
