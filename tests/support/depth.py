"""How deep the tests try: little of each claim at each change, and more of it in `make test-deep`.

A law holds for all definitions, and a test tries some. How many is chosen by what one costs: those of the model and of
the engine in the process are many at each change; those that real Spark plans and runs are few (`cases/few.py`),
with each kind of window, trigger, step and answer among them.
"""

from __future__ import annotations

import os

import pytest

DEPTH = int(os.environ.get("TAILRACE_TEST_DEPTH", "1"))
"""0 while one works, 1 at each change; beyond that `deep` tests run, too, and laws have so many times the examples."""

deep = pytest.mark.deep
"""Marks a test that runs only where it is asked for more than what each change needs."""


def cases(count: int, deeper: int | None = None) -> int:
    """How many examples to try: `count` at each change, a quarter while one works, `deeper` times the depth beyond."""
    if DEPTH < 2:
        return count if DEPTH else max(1, count // 4)
    return (count if deeper is None else deeper) * DEPTH
