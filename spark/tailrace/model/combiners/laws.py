"""A check, for use in tests, that a custom combiner obeys the laws on which its answers depend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from tailrace.model.base.errors import TailraceError
from tailrace.model.combiners.own import OwnCombiner


class LawError(TailraceError, AssertionError):
    """The error for a combiner that breaks a law; the message contains the values for which the law does not hold."""


def obeys(combiner: OwnCombiner, values: Sequence[Any]) -> None:
    """Check, by means of sample values, that a custom combiner obeys the laws for combiners.

    Raises `LawError` if the result depends on the order or grouping in which values are added and merged, if merging
    with `zero` changes the result, or if `uncombine` does not undo `merge`.

    >>> from tailrace.model.combiners.sketches import ApproxDistinct
    >>> obeys(ApproxDistinct("user"), ["a", "b", "a"])
    """

    def all_of(added: Sequence[Any]) -> Any:
        state = combiner.zero()
        for value in added:
            state = combiner.add(state, value)
        return state

    expected = combiner.output(all_of(values))
    for order in list(permutations(values))[:120]:
        for cut in range(len(values) + 1):
            left, right = all_of(order[:cut]), all_of(order[cut:])
            for a, b, how in ((left, right, "merged"), (right, left, "merged the other way round")):
                output = combiner.output(combiner.merge(a, b))
                if output != expected:
                    raise LawError(
                        f"{combiner!r}: {list(order[:cut])} {how} with {list(order[cut:])} gives {output!r}, and "
                        f"{list(values)} added one by one {expected!r}: merge must not mind order or grouping"
                    )
    for cut in range(len(values) + 1 if combiner.uncombines else 0):
        left, right = all_of(values[:cut]), all_of(values[cut:])
        output, alone = combiner.output(combiner.uncombine(combiner.merge(left, right), right)), combiner.output(left)
        if output != alone:
            raise LawError(
                f"{combiner!r}: {list(values[cut:])} taken out of {list(values)} leaves {output!r}, and what is left "
                f"gives {alone!r} by itself: uncombine must undo merge"
            )
    whole = all_of(values)
    for a, b in ((whole, combiner.zero()), (combiner.zero(), whole)):
        if combiner.output(combiner.merge(a, b)) != expected:
            raise LawError(
                f"{combiner!r}: merging {list(values)} with zero gives another result: zero must be the unit"
            )
