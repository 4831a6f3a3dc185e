"""A process that runs `tailrace` commands one after the other, as a terminal would, in one JVM that stays warm.

A Spark that starts anew for each command costs most of a test of many commands. What one command does to the process,
to its views or to its session, the next must not see: a session ends with its command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.faults.killing import BRISK

RUNS = """
import contextlib, io, json, os, sys
from unittest.mock import patch
from typer.main import get_command
from tailrace.cli.main import app

real = sys.stdout
for line in sys.stdin:
    out, err, status, (words, env) = io.StringIO(), io.StringIO(), 0, json.loads(line)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patch.dict(os.environ, env):
        try:
            get_command(app).main(words, prog_name="tailrace")
        except SystemExit as end:
            status = end.code or 0
    print(json.dumps({"status": status, "out": out.getvalue(), "err": err.getvalue()}), file=real, flush=True)
"""


@dataclass(frozen=True)
class Shell:
    """A running one."""

    process: subprocess.Popen[str]

    def run(self, *words: str, status: int = 0, env: Mapping[str, str] | None = None) -> str:
        """What a command prints, with `env` besides what the process has. It must end with this status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([words, dict(env or {})]) + "\n")
        self.process.stdin.flush()
        said = ""
        for said in self.process.stdout:
            # dbt and the JVM also write to where the process does.
            if said.startswith('{"status": '):
                break
        else:
            raise AssertionError(f"{words}: the process ended; it last said {said!r}")
        done = json.loads(said)
        assert done["status"] == status, f"{words}: {done['out']}\n{done['err']}"
        found: str = done["out"]
        return found


@contextmanager
def shell(folder: Path, more: Mapping[str, str]) -> Iterator[Shell]:
    """A shell in a folder, with more environment variables; what it says besides goes to `shell.log` there."""
    env = {**os.environ, "SPARK_SUBMIT_OPTS": BRISK, **more}
    with (folder / "shell.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", RUNS], cwd=folder, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
        with process:
            yield Shell(process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
