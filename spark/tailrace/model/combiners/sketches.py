"""Combiners that compute approximate results in a small accumulator: the number of different values, and quantiles.

A stream and a backfill must return the same results, so the results of these combiners must not depend on the order or
grouping of the values. A sketch with random or order-dependent compaction, such as KLL, would return different results
in a stream and a backfill.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from math import ceil, isfinite, log
from typing import Any, ClassVar

from tailrace.model.base.errors import Fault, share_faults, whole_faults
from tailrace.model.base.time import instant
from tailrace.model.base.types import REAL, decimal_parts, exact
from tailrace.model.combiners.own import OwnCombiner

_HASHES = 2**63


@dataclass(frozen=True)
class ApproxDistinct(OwnCombiner):
    """The approximate number of different values in a column, computed from the `size` smallest hashes of the values.

    The result is exact if there are fewer than `size` different values. Otherwise, the standard error is about 1 /
    sqrt(size): with the default size, the error is at most 3 % in two of three cases. The method estimates the number
    from the smallest hashes, and assumes that hashes are evenly distributed (Bar-Yossef and others, 2002).

    >>> many = ApproxDistinct("user", size=256)
    >>> state = many.zero()
    >>> for user in [*range(1000), *range(1000)]:
    ...     state = many.add(state, user)
    >>> 800 < many.output(state) < 1200, len(state)
    (True, 256)
    """

    column: str
    size: int = 1024

    state = "array<bigint>"
    gives = "bigint"
    fails: ClassVar[bool] = False

    def zero(self) -> list[int]:
        return []

    def add(self, state: list[int], value: Any) -> list[int]:
        return self.merge(state, [_hash(value)])

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return sorted({*a, *b})[: self.size]

    def output(self, state: list[int]) -> int:
        return len(state) if len(state) < self.size else round((self.size - 1) * _HASHES / (state[-1] or 1))

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        return whole_faults(f"{path}.size", self.size, "leave it out for 1024", least=16)


def _hash(value: Any) -> int:
    if isinstance(value, datetime):
        value = instant(value)
    text = f"{value.normalize():f}" if isinstance(value, Decimal) else f"{value}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class ApproxQuantile(OwnCombiner):
    """The approximate quantile of a column's values at `share`, with a maximum relative error of `error`.

    The accumulator counts values in buckets whose bounds grow by a constant factor (Masson, Rim and Lee, 2019:
    DDSketch). A value is removed by decreasing its bucket's count. The result is null if there are no values.

    >>> median = ApproxQuantile("delay", 0.5)
    >>> state = median.zero()
    >>> for delay in range(1, 1002):
    ...     state = median.add(state, delay)
    >>> 495 < median.output(state) < 507
    True

    `share` is the number as it is written: 0.28 of 25 values are 7 values.

    >>> some = ApproxQuantile("delay", 0.28)
    >>> round(some.output([{"value": some._bucket(delay), "n": 1} for delay in range(1, 26)]))
    7
    """

    column: str
    share: float
    error: float = 0.01

    state = "array<struct<value:bigint,n:bigint>>"
    gives = "double"
    fails: ClassVar[bool] = False
    uncombines: ClassVar[bool] = True

    def zero(self) -> list[dict[str, int]]:
        return []

    def add(self, state: list[dict[str, int]], value: Any) -> list[dict[str, int]]:
        # NaN and infinities belong to no bucket, so they are ignored like missing values.
        return self.merge(state, [{"value": self._bucket(float(value)), "n": 1}]) if isfinite(value) else state

    def merge(self, a: list[dict[str, int]], b: list[dict[str, int]]) -> list[dict[str, int]]:
        return _added(a, b, 1)

    def uncombine(self, a: list[dict[str, int]], b: list[dict[str, int]]) -> list[dict[str, int]]:
        return _added(a, b, -1)

    def output(self, state: list[dict[str, int]]) -> float | None:
        left = max(1, ceil(exact(self.share) * sum(row["n"] for row in state)))
        for row in state:
            left -= row["n"]
            if left <= 0:
                return self._middle(row["value"])
        return None

    @property
    def _growth(self) -> float:
        return (1 + self.error) / (1 - self.error)

    def _bucket(self, value: float) -> int:
        """Return the index of the bucket for a value.

        A bucket with larger values has a larger index; zero has its own bucket.
        """
        if value == 0:
            return 0
        place = ceil(log(abs(value)) / log(self._growth)) + _SHIFT
        return place if value > 0 else -place

    def _middle(self, bucket: int) -> float:
        if bucket == 0:
            return 0.0
        value = 2 * self._growth ** (abs(bucket) - _SHIFT) / (self._growth + 1)
        # Subtracting from zero makes no negative zero, even if the value is so small that it was rounded to zero.
        return value if bucket > 0 else 0.0 - value

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        error = self.error
        yield from share_faults(f"{path}.share", self.share, f"write ApproxQuantile({self.column!r}, 0.95)")
        if not isinstance(error, float) or not 0.0001 <= error < 0.5:
            yield Fault(f"{path}.error", error, "a share between 0.0001 and 0.5", "leave it out for 0.01")
        if type is not None and type not in ("int", "bigint", *REAL) and decimal_parts(type) is None:
            yield Fault(
                f"{path}.column", f"{self.column}: {type}", "a column of numbers", "use Quantile, or another column"
            )


_SHIFT = 1 << 24
"""A number that is added to the exponent of each bucket, so that the index is positive before it gets the value's
sign.
"""


def _added(a: list[dict[str, int]], b: list[dict[str, int]], sign: int) -> list[dict[str, int]]:
    counts = {row["value"]: row["n"] for row in a}
    for row in b:
        counts[row["value"]] = counts.get(row["value"], 0) + sign * row["n"]
    return [{"value": value, "n": counts[value]} for value in sorted(counts) if counts[value]]
