"""Run a complete Airflow on this machine: `tailrace airflow`.

The API server, scheduler, triggerer and DAG processor are separate processes. This module stops the processes by their
ids, because `airflow standalone` leaves orphaned processes behind. The database is SQLite unless
AIRFLOW__DATABASE__SQL_ALCHEMY_CONN names a different database. Other AIRFLOW__* variables of the environment also
apply, except for the variables that this module sets.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace.airflow import sqlite_turns
from tailrace.model.base.errors import TailraceError
from tailrace.runners.keeper import end_all
from tailrace.runners.local import Local
from tailrace.runners.processes import free_port, signal_group
from tailrace.settings import PREFIX, Place

SERVERS = {
    "api-server": (),
    # Do not start the log servers of the scheduler and the triggerer, because they would listen at every address of the
    # machine. The API server reads the log files instead.
    "scheduler": ("--skip-serve-logs",),
    "triggerer": ("--skip-serve-logs",),
    "dag-processor": (),
}
"""Airflow's processes, and the command-line options of each process."""

_VARIABLES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    files("tailrace.airflow").joinpath("standalone.toml").read_text("utf-8")
)

STARTING = 300.0
"""The maximum time in seconds until all parts of Airflow are healthy.

On an idle machine, Airflow usually starts in about thirty seconds.
"""

STOPPING = 20.0
"""The maximum time in seconds that a process has to end after SIGTERM."""


class StandaloneError(TailraceError, RuntimeError):
    """Airflow did not start. The message names the log file with the reason."""


@dataclass
class Standalone:
    """An Airflow for one lake, in a separate folder. User `admin` has all permissions; user `viewer` may only read."""

    folder: Path
    dags: Path
    warehouse: Place
    port: int = 8080
    settings: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder, self.dags = self.folder.resolve(), self.dags.resolve()
        if isinstance(self.warehouse, Path):
            self.warehouse = self.warehouse.resolve()
        self.port = free_port(self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def logins(self) -> dict[str, str]:
        """The password of each user. The passwords are generated once per folder."""
        return self._private_file(
            "passwords.json", lambda: {user: secrets.token_urlsafe(9) for user in ("admin", "viewer")}
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of Airflow's processes.

        The result contains the caller's variables, and variables with the addresses, folders and secrets of this
        Airflow.
        """
        defaults = dict(_VARIABLES["defaults"])
        # Compare only the beginning of each variable's name, because variables with a suffix (`_CMD`, `_SECRET`) also
        # set the database's address, from a command or a secret.
        if not any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in os.environ):
            defaults["AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS"] = f"{sqlite_turns.__name__}.CONNECT_ARGS"
        given = {"airflow": self, "api": self._secret("api"), "jwt": self._secret("jwt")}
        ours = {name: text.format(**given) for name, text in _VARIABLES["ours"].items()}
        lake = {f"{PREFIX}WAREHOUSE": str(self.warehouse), "PYTHONUNBUFFERED": "1"}
        return defaults | os.environ | ours | lake | dict(self.settings)

    def start(self, tell: Callable[[str], object] = lambda text: None) -> None:
        """Start Airflow, and return when all its parts are healthy.

        Raises `StandaloneError` if a part ends early or Airflow does not become healthy in time.
        """
        (self.folder / "servers").mkdir(parents=True, exist_ok=True)
        self.logins  # noqa: B018 - it is there before a server reads it
        tell("making the database")
        self._ran("db", "migrate")
        tell("starting Airflow")
        for name, options in SERVERS.items():
            with self._log(name).open("wb") as log:
                # Each process has a separate process group, so that Ctrl-C reaches only this process. This process then
                # stops Airflow's processes.
                self.processes[name] = subprocess.Popen(
                    [_airflow(), name, *options], env=self.environment, stdout=log, stderr=log, start_new_session=True
                )
        until = time.monotonic() + STARTING
        while not self._healthy():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    self.stop()
                    raise StandaloneError(f"Airflow's {name} ended: see {self._log(name)}")
            if time.monotonic() > until:
                self.stop()
                raise StandaloneError(f"Airflow was not healthy after {STARTING:.0f} s: see {self._log('scheduler')}")
            time.sleep(0.5)

    def stop(self) -> None:
        """Stop Airflow's processes, the warm Spark session of the runner, and the lake's streams on this machine."""
        for process in self.processes.values():
            signal_group(process, signal.SIGTERM)
        until = time.monotonic() + STOPPING
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            # Kill the whole process group, because other processes of the group may still run.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()
        Local.stop_all(self.warehouse)
        end_all(self.warehouse)

    def token(self, user: str) -> str:
        """Request an API token for a user."""
        asked = {"username": user, "password": self.logins[user]}
        return str(self.call("/auth/token", asked)["access_token"])

    def call(self, path: str, body: object = None, token: str = "", method: str | None = None) -> Any:
        """Call the REST API and return its response. Raises `urllib.error.HTTPError` if the API refuses the call."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def _healthy(self) -> bool:
        try:
            health = self.call("/api/v2/monitor/health")
        except (OSError, ValueError):
            return False
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all(health.get(part, {}).get("status") == "healthy" for part in parts)

    def _ran(self, *command: str) -> None:
        with self._log(command[0]).open("wb") as log:
            done = subprocess.run([_airflow(), *command], env=self.environment, stdout=log, stderr=log, check=False)
        if done.returncode:
            raise StandaloneError(f"airflow {' '.join(command)} failed: see {self._log(command[0])}")

    def _log(self, name: str) -> Path:
        return self.folder / "servers" / f"{name}.log"

    def _secret(self, name: str) -> str:
        made: dict[str, str] = self._private_file(f"{name}.json", lambda: {"secret": secrets.token_urlsafe(32)})
        return made["secret"]

    def _private_file(self, name: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Read a private file in the folder; create the file if it is missing."""
        file = self.folder / name
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                json.dump(make(), out)
        content: dict[str, str] = json.loads(file.read_text())
        return content


def _airflow() -> str:
    """Return the path of this installation's `airflow` command."""
    return str(Path(sys.executable).with_name("airflow"))


def run_airflow(folder: Path, dags: Path, warehouse: Place, port: int) -> bool:
    """Run Airflow until Ctrl-C or SIGTERM; return False if one of its servers ended by itself."""
    signals: list[int] = []

    def tell(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, tell)
    airflow = Standalone(folder, dags, warehouse, port)
    airflow.start(lambda text: print(f"{text} …", flush=True))
    print(f"Airflow is at {airflow.url}, on the lake {airflow.warehouse}")
    for user, password in airflow.logins.items():
        print(f"  user {user:<7} password {password}")
    print("Ctrl-C stops it.", flush=True)
    while not signals and all(process.poll() is None for process in airflow.processes.values()):
        time.sleep(0.2)
    if not signals:
        print("error: a server ended by itself: see the logs in", airflow.folder / "servers", file=sys.stderr)
    print("stopping …", flush=True)
    airflow.stop()
    return bool(signals)
