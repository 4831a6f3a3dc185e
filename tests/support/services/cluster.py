"""A Spark standalone cluster of real processes on loopback, whose workers can be lost and come back."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tailrace.settings import Settings
from tailrace.toolchain import class_path, quiet_home, require_java
from tests.support.faults.killing import JVM
from tests.support.waiting import until

HOME = Path(pyspark.__file__).parent
SUBMIT = str(Path(sys.executable).with_name("spark-submit"))
PATIENT = 120.0
"""Seconds that a process of it may take to begin."""


@dataclass
class Cluster:
    """A master, and workers of one core each, each a process group with its executors; `env` is what a submit needs."""

    folder: Path
    address: str
    env: dict[str, str]
    options: Sequence[str]
    master: subprocess.Popen[bytes]
    memory: str = "1g"
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _made: int = 0

    @property
    def said(self) -> str:
        """What the master has said so far."""
        return (self.folder / "master.log").read_text()

    def add(self) -> None:
        """Start a worker, and come back when the master knows it."""
        self._made += 1
        log = self.folder / f"worker{self._made}.log"
        words = ["--cores", "1", "--memory", self.memory, "--work-dir", str(self.folder / "work")]
        self.workers.append(_started("worker.Worker", [*words, self.address], log, self.env))
        until(lambda: self.said.count("Registering worker") >= self._made, PATIENT, told=lambda: self.said)

    def lose(self, number: int = 0) -> None:
        """Kill a worker, and the executors that it runs, as a machine that is lost."""
        worker = self.workers.pop(number)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def launched(self, executors: int) -> None:
        """Wait until so many executors were launched in all."""
        until(lambda: self.said.count("Launching executor") >= executors, PATIENT, told=lambda: self.said)

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def cluster(
    folder: Path, settings: Settings, workers: int = 2, memory: str = "1g", heap: str = "512m"
) -> Iterator[Cluster]:
    """A running one with so many workers, each with `memory` for its executor, whose heap is smaller.

    `options` are the words of spark-submit that its runs need.
    """
    folder.mkdir()
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    home = str(quiet_home(require_java(settings.java_home), settings.jars))
    told = {
        "JAVA_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    jars = os.pathsep.join(map(str, class_path(settings.jars, ("lake",))))
    address = f"spark://127.0.0.1:{port}"
    options = ["--master", address, "--conf", "spark.driver.host=127.0.0.1", "--conf", f"spark.executor.memory={heap}"]
    options += ["--conf", f"spark.executor.extraJavaOptions={JVM}"]
    options += [word for side in ("driver", "executor") for word in ("--conf", f"spark.{side}.extraClassPath={jars}")]
    master = _started("master.Master", ["--port", str(port)], folder / "master.log", told)
    made = Cluster(folder, address, told, options, master, memory)
    try:
        for _ in range(workers):
            made.add()
        yield made
    finally:
        made.stop()


def _started(kind: str, words: Sequence[str], log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
    command += ["--host", "127.0.0.1", "--webui-port", "0", *words]
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | env, start_new_session=True)
