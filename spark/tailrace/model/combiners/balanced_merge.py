"""Merging of many accumulators in pairs of similar size, so that a growing accumulator is not copied once per
record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Accumulator = TypeVar("Accumulator")


def total(
    accumulators: Sequence[Accumulator], merged: Callable[[Accumulator, Accumulator], Accumulator]
) -> Accumulator:
    """Merge all accumulators in one call; there must be at least one accumulator.

    The result is the same as with `Merging`, to which accumulators are added one at a time.

    >>> held = Merging()
    >>> for one in "abcdefghijk":
    ...     held.add(one, "({}{})".format)
    >>> total("abcdefghijk", "({}{})".format) == held.total("({}{})".format)
    True
    """
    while len(accumulators) > 1:
        pairs = [merged(a, b) for a, b in zip(accumulators[::2], accumulators[1::2], strict=False)]
        accumulators = [*pairs, accumulators[-1]] if len(accumulators) % 2 else pairs
    return accumulators[0]


class Merging(Generic[Accumulator]):
    """A collection that accepts accumulators one at a time, and merges accumulators of equal size in pairs.

    The size of an accumulator is the number of added accumulators that are merged in it. The function `merged`, which
    merges two accumulators, must be associative.

    >>> all_of = Merging()
    >>> for one in range(1000):
    ...     all_of.add([one], lambda a, b: a + b)
    >>> all_of.total(lambda a, b: a + b) == list(range(1000))
    True
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[tuple[int, Accumulator]] = []

    def add(self, accumulator: Accumulator, merged: Callable[[Accumulator, Accumulator], Accumulator]) -> None:
        """Add an accumulator to the collection; then merge accumulators of equal size, if there are any."""
        size = 1
        while self._held and self._held[-1][0] == size:
            accumulator = merged(self._held.pop()[1], accumulator)
            size *= 2
        self._held.append((size, accumulator))

    def total(self, merged: Callable[[Accumulator, Accumulator], Accumulator]) -> Accumulator:
        """Merge all accumulators of the collection, in the order in which they were added; there must be at least one
        accumulator.
        """
        *others, (_, total) = self._held
        for _, one in reversed(others):
            total = merged(one, total)
        return total
