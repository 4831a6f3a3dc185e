"""Switch Python's collector of cyclic garbage off during a step: no object of a step is in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Switch the collector of cyclic garbage off for a block, so it does not search a step's many objects in vain.

    Objects that are in no cycle are freed as usual. Of two steps at the same time, the first to begin switches the
    collector on again.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
