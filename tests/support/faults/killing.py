"""Streams that are killed, their JVMs with them, at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tailrace.settings import Settings
from tests.support.depth import DEPTH

ROOT = Path(__file__).parents[3]
KILLS = 2 if DEPTH < 2 else 5 * DEPTH
"""How often each stream is killed: 20 times in `make test-deep`."""

SEED = int(os.environ.get("TAILRACE_TEST_SEED", "20130308"))
"""Printed with a failure, and settable, so that a schedule can be run again."""


JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Java's options in the tests: to compile well what is over soon, or collect beside it, takes longer than it saves."""

BRISK = f"{JVM} -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""Java's options for a process whose epochs are tiny: to compile what Spark writes for them would dwarf them."""


def environment(settings: Settings, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process of the command on a test's lake, on which no epoch is large."""
    named = {"warehouse": settings.warehouse, "catalog_uri": settings.catalog_uri, "namespace": settings.namespace}
    named |= {"driver_memory": "1g", "shuffle_partitions": "1"}
    env = os.environ | {f"TAILRACE_{name.upper()}": str(value) for name, value in named.items()}
    return env | {"PYTHONPATH": f"{ROOT / 'spark'}{os.pathsep}{ROOT}", "SPARK_SUBMIT_OPTS": BRISK} | dict(more or {})


def run_here(*words: str, env: Mapping[str, str]) -> str:
    """Run a command to its end in this process, on the Spark that runs here if any, and return what it prints."""
    from typer.testing import CliRunner

    from tailrace.cli.main import app

    done = CliRunner().invoke(app, words, env=env)
    assert done.exit_code == 0, f"{words}: {done.exit_code}\n{done.output}\n{done.exception!r}"
    return done.stdout


def run_and_kill(command: list[str], env: dict[str, str], chance: random.Random, within: float = 2.5) -> bool:
    """Start a stream and kill it within so many seconds of its first epoch; gives whether it was still running."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.random() * within)
        running = process.poll() is None
        # One that has come to its end by itself has left no group, unless its JVM outlived it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return running
