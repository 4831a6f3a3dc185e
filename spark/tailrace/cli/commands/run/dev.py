"""`tailrace dev`: stream and serve definitions on a scratch lake, and begin anew when a definition changes."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from tailrace.cli.commands.look.serve import PORT
from tailrace.cli.runtime.command_list import load_command
from tailrace.cli.runtime.interruption import Stop
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.plan.loader import load_all
from tailrace.runners.processes import find_error, free_port, signal_group
from tailrace.settings import PREFIX, Settings, project_folder


def dev(
    definitions: list[str] | None = None,
    folders: list[str] | None = None,
    format: list[str] | None = None,
    topics: list[str] | None = None,
    bootstrap: str | None = None,
    port: int = PORT,
) -> None:
    """Stream definitions into a scratch lake, show it in a browser, and begin anew when a definition changes.

    The sources are named as for `tailrace stream`. The scratch lake is in build/dev, and is empty at each start, so the
    stream reads the sources from their beginning: begin with a few files. The lake of the settings is not touched. If a
    file beside a definition changes, and the definition is valid, stream and page begin anew, on an empty lake. If it
    is not valid, the reason is printed, and the former definition goes on. Ctrl-C ends stream and page.

    Without definitions, it takes the arguments that the setting TAILRACE_DEV names, as `tailrace init` sets it for a
    new project.
    """
    if not definitions:
        return dev(**{**_named(), **({} if port == PORT else {"port": port})})
    load_all(definitions)
    output = Output()
    sources = [word for option, places in (("--from", folders), ("--kafka", topics)) for one in places or []
               for word in (option, one)]  # fmt: skip
    if not sources:
        raise UsageError("no source: pass --from DIR, such as --from landing, or --kafka TOPIC")
    for one in format or []:
        sources += ["--format", one]
    if bootstrap is not None:
        sources += ["--bootstrap", bootstrap]
    with Stop() as stop, _only_one(SCRATCH):
        # The page keeps its address when it begins anew.
        work = _Workbench(definitions, sources, free_port(port), output)
        try:
            work.begin()
            while not stop:
                time.sleep(LOOK)
                work.look()
        finally:
            work.end()
    raise typer.Exit(ExitStatus.INTERRUPTED)


def _named() -> dict[str, Any]:
    """Read the arguments that the setting names, and go to the folder to which their paths are relative."""
    named = shlex.split(Settings().dev or "")
    if not named:
        raise UsageError(
            "no DEFINITION: pass one, such as pipelines/shop.py --from landing, set TAILRACE_DEV, or go to the folder "
            "of a project that `tailrace init` made"
        )
    told = load_command("dev").make_context("tailrace dev", named).params
    if not told["definitions"]:
        raise UsageError(f"TAILRACE_DEV {shlex.join(named)}: expected a definition, such as pipelines/shop.py")
    os.chdir(project_folder())
    return told


SCRATCH = Path("build/dev")
"""The folder of the scratch lakes."""

LOOK = 0.3
"""The time in seconds between two looks at the files."""

_ENDING = 20.0
"""The maximum time in seconds that a process has to end after SIGTERM."""


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the folder, which only one process may use, and empty it before and after."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{folder}: another `tailrace dev` runs in this folder: end it first") from None
        _empty(folder)
        try:
            yield
        finally:
            _empty(folder)


def _empty(folder: Path) -> None:
    for lake in folder.glob("lake-*"):
        shutil.rmtree(lake, ignore_errors=True)


@dataclass
class _Workbench:
    """The stream and the page of some definitions, and what is known of the definitions' files."""

    definitions: Sequence[str]
    sources: Sequence[str]
    port: int
    output: Output
    lakes: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    texts: Mapping[Path, bytes] = field(default_factory=dict)

    def begin(self) -> None:
        """Start the stream and the page on a new scratch lake."""
        self.texts = self._read()
        self.lakes += 1
        lake = SCRATCH.resolve() / f"lake-{self.lakes}"
        # The page looks into the catalog as soon as it is asked.
        lake.mkdir()
        own = {"warehouse": str(lake), "catalog_uri": "", "checkpoints": str(lake / "checkpoints")}
        Settings(**own)  # the other settings must go with these
        environment = os.environ | {f"{PREFIX}{name.upper()}": value for name, value in own.items()}
        for name, words in {
            # The answers are to be seen at once, and the lake is small.
            "stream": ["stream", *self.definitions, *self.sources, "--follow-every", "1"],
            "page": ["serve", *self.definitions, "--port", str(self.port)],
        }.items():
            # In a session of its own, a process does not receive Ctrl-C, which this process hands on as SIGTERM.
            self.processes[name] = subprocess.Popen(
                [*_TAILRACE, *words], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def look(self) -> None:
        """Begin anew if a file has changed and the definitions are valid; tell if a process has ended."""
        for name, process in [*self.processes.items()]:
            if process.poll() is not None:
                del self.processes[name]
                self.output.say(f"the {name} ended; both start again when a definition changes")
        read = self._read()
        if read == self.texts:
            return
        changed = sorted(str(one) for one in {*read, *self.texts} if read.get(one) != self.texts.get(one))
        self.texts = read
        if (error := self._fault()) is not None:
            self.output.error(f"{error}\nthe former definition goes on")
            return
        self.output.say(f"{', '.join(changed)} changed: beginning anew")
        self.end()
        _empty(SCRATCH)
        self.begin()

    def end(self) -> None:
        """End the processes; the stream ends between two epochs."""
        for process in self.processes.values():
            # Only the process itself: its JVM ends with it, and not before.
            process.terminate()
        until = time.monotonic() + _ENDING
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            signal_group(process, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def _read(self) -> Mapping[Path, bytes]:
        """Read the Python files beside the definitions, which may import each other."""
        folders = {Path(one.partition(".py")[0] + ".py").parent for one in self.definitions}
        found = dict[Path, bytes]()
        for file in sorted(file for folder in folders for file in folder.glob("*.py")):
            try:
                found[file] = file.read_bytes()
            except FileNotFoundError:
                # An editor puts a new file in the place of the old one.
                continue
        return found

    def _fault(self) -> str | None:
        """Return the reason for which the definitions are not valid.

        They are loaded in a process of their own, because this process keeps the modules that they import.
        """
        for definition in self.definitions:
            done = subprocess.run([*_TAILRACE, "explain", definition], capture_output=True, text=True, check=False)
            if done.returncode:
                return find_error(done.stderr)
        return None


_TAILRACE = [sys.executable, "-m", "tailrace.cli.main"]
