"""Streams that are killed, their JVMs with them, at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

KILLS = int(os.environ.get("TAILRACE_TEST_KILLS", "2"))
"""How often each stream is killed; `make soak` kills them more often."""

SEED = int(os.environ.get("TAILRACE_TEST_SEED", "20130308"))
"""Printed with a failure, and settable, so that a schedule can be run again."""


def run_and_kill(command: list[str], env: dict[str, str], chance: random.Random, within: float = 2.5) -> bool:
    """Start a stream and kill it within so many seconds of its first epoch; gives whether it was still running."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.random() * within)
        running = process.poll() is None
        # Only where the group is still there; the leader is not reaped yet, so its id is its own.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return running
