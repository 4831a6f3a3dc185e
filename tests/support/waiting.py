"""Waiting for what another process or thread does, on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENT = 240.0
"""Seconds after which what does not get on is taken for stuck."""


def until(
    holds: Callable[[], object],
    seconds: float = PATIENT,
    *,
    every: float = 0.2,
    told: Callable[[], object] = lambda: "it does not come to hold",
) -> None:
    """Wait until it holds, looking every so many seconds; `told` says what there is where it never does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, told()
        time.sleep(every)
