"""Calls in a process of their own, whose memory is watched."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any


def peak_of(
    call: Callable[..., Any], *given: Any, first: Callable[[], Any] | None = None, within: int | None = None
) -> tuple[Any, int]:
    """Call a function of a module in a process of its own; return its result, and the bytes of memory it took at most.

    What the process has before, once `first` was called there, does not count. The kernel gives it no more than
    `within` bytes beyond that.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_called, (call, given, first, within))


def _called(
    call: Callable[..., Any], given: tuple[Any, ...], first: Callable[[], Any] | None, within: int | None
) -> tuple[Any, int]:
    if first is not None:
        first()
    before = begin()
    if within is not None:
        most = held("VmData") + within
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    found = call(*given)
    return found, held("VmHWM") - before


def begin() -> int:
    """Forget the peak of this process so far; return the bytes that it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return held("VmRSS")


def held(what: str) -> int:
    """Return the bytes that this process has (`VmRSS`), had at most (`VmHWM`), or may write to (`VmData`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))
