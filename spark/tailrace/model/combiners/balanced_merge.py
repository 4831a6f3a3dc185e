"""Merging of accumulators in an order that copies a growing accumulator a few times, and not once for each record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Accumulator = TypeVar("Accumulator")


def total(
    accumulators: Sequence[Accumulator], merged: Callable[[Accumulator, Accumulator], Accumulator]
) -> Accumulator:
    """Merge all accumulators at once, at least one, with the same result as `Merging`, which is given one at a time.

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
    """Accumulators that are added one at a time and merged in pairs of equal size; merging is associative.

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
        """Add an accumulator."""
        size = 1
        while self._held and self._held[-1][0] == size:
            accumulator = merged(self._held.pop()[1], accumulator)
            size *= 2
        self._held.append((size, accumulator))

    def total(self, merged: Callable[[Accumulator, Accumulator], Accumulator]) -> Accumulator:
        """Merge all accumulators, in their order; there is at least one."""
        *others, (_, total) = self._held
        for _, one in reversed(others):
            total = merged(one, total)
        return total
