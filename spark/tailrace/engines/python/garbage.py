"""Switch Python's collector of cyclic garbage off during a step, whose objects are in no cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Switch the collector of cyclic garbage off for a block: it would go through all of a step's many objects in vain.

    Objects in no cycle are freed as ever. Of two steps at once, the one that began first switches the collector on
    again.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
