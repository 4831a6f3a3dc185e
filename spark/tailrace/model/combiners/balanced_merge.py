"""Merging of accumulators in an order that copies a growing accumulator a few times, and not once for each record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Accumulator = TypeVar("Accumulator")


def total(given: Sequence[Accumulator], merged: Callable[[Accumulator, Accumulator], Accumulator]) -> Accumulator:
    """Merge all accumulators at once, at least one, with the same result as `Merging`, which is given one at a time.

    >>> held = Merging()
    >>> for one in "abcdefghijk":
    ...     held.add(one, "({}{})".format)
    >>> total("abcdefghijk", "({}{})".format) == held.total("({}{})".format)
    True
    """
    while len(given) > 1:
        pairs = [merged(a, b) for a, b in zip(given[::2], given[1::2], strict=False)]
        given = [*pairs, given[-1]] if len(given) % 2 else pairs
    return given[0]


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

    def add(self, one: Accumulator, merged: Callable[[Accumulator, Accumulator], Accumulator]) -> None:
        """Add an accumulator."""
        size = 1
        while self._held and self._held[-1][0] == size:
            one = merged(self._held.pop()[1], one)
            size *= 2
        self._held.append((size, one))

    def total(self, merged: Callable[[Accumulator, Accumulator], Accumulator]) -> Accumulator:
        """Merge all accumulators, in their order; there is at least one."""
        *others, (_, total) = self._held
        for _, one in reversed(others):
            total = merged(one, total)
        return total
