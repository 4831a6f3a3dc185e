"""Leave out what Python does about garbage that a step cannot have."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Leave out Python's search for cycles of garbage: a step's objects are many and in none, and it goes through all.

    What is in no cycle is freed as ever. Of two steps at once the one that began first has it searched for again.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
