"""Least squares with no coefficient below zero: nothing makes an epoch cheaper by being there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROUNDS = 1000


def nonnegative(
    rows: Sequence[Sequence[float]], values: Sequence[float], sizes: Sequence[float] | None = None
) -> list[float]:
    """Return the coefficients, none negative, that make the sum of squares of *relative* errors least.

    Errors are relative to `sizes`, or to the values themselves: a stream of 2,000 records says as much of what is fixed
    as one of 400,000 says of what is not. This is the active-set method of Lawson and Hanson (Solving Least Squares
    Problems, 1974, chapter 23).

    >>> [round(one, 6) for one in nonnegative([(1, 1), (1, 2), (1, 5)], [5, 7, 13])]
    [3.0, 2.0]
    """
    size = np.asarray(values if sizes is None else sizes, float)
    matrix = np.asarray(rows, float) / size[:, None]
    wanted = np.asarray(values, float) / size
    # Columns of like size, so that one tolerance is right for records and for tasks.
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    matrix = matrix / scale
    found, free = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], bool)
    for _ in range(_ROUNDS):
        slope = matrix.T @ (wanted - matrix @ found)
        slope[free] = -np.inf
        if free.all() or slope.max() <= 1e-9:
            break
        free[slope.argmax()] = True
        while True:
            tried = np.zeros_like(found)
            tried[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            below = free & (tried <= 0)
            if not below.any():
                break
            step = (found[below] / np.maximum(found[below] - tried[below], 1e-300)).min()
            found = found + step * (tried - found)
            free &= found > 1e-12
            found[~free] = 0.0
        found = tried
    return [float(one) for one in found / scale]
