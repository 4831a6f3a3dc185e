"""Turn off Python's cyclic garbage collector during a step, because a step creates no reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Turn off the cyclic garbage collector for a block.

    The collector would search a step's many objects without finding a reference cycle. Objects that are not part of a
    reference cycle are freed as usual. If two blocks overlap in time, the collector is turned on again when the block
    that began first ends.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
