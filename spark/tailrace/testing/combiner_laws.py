"""The check, for use in tests, that a custom combiner obeys the laws, record by record and by the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.engines.python.own_calls import plain_state
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.combiners import laws
from tailrace.model.combiners.laws import LawError
from tailrace.model.combiners.own import OwnCombiner


def obeys(combiner: OwnCombiner, values: Sequence[Any], *, type: str | None = None) -> None:
    """Check, by means of sample values, that a custom combiner obeys the laws for combiners.

    Raises `LawError` if the result depends on the order or grouping in which values are added and merged, if merging
    with `zero` changes the result, or if `uncombine` does not undo `merge`. If the combiner implements `add_batch` or
    `add_groups`, these methods must give the same results as `add` for one value after the other. `type` is the type of
    the combiner's column, in which these two methods receive the values; without it, the values' own types are used.

    >>> from tailrace import ApproxDistinct
    >>> obeys(ApproxDistinct("user"), ["a", "b", "a"])
    """
    laws.obeys(combiner, values)
    array = pa.array(values, None if type is None else arrow_schema({"value": type}).field(0).type)
    if combiner.by_batch:
        _batches(combiner, values, array)
    if combiner.by_groups and len(values):
        for length in range(1, len(values) + 1):
            _groups(combiner, values, array, list(range(0, len(values), length)))


def _batches(combiner: OwnCombiner, values: Sequence[Any], array: pa.Array) -> None:
    for cut in range(len(values)):
        state = _one_by_one(combiner, values[:cut])
        made = combiner.output(plain_state(combiner.add_batch(state, array[cut:])))
        if made != (expected := combiner.output(_one_by_one(combiner, values))):
            raise LawError(
                f"{combiner!r}: {list(values[cut:])} added by add_batch after {list(values[:cut])} gives {made!r}, and "
                f"one by one {expected!r}: add_batch must return what add returns for one value after the other"
            )


def _groups(combiner: OwnCombiner, values: Sequence[Any], array: pa.Array, starts: list[int]) -> None:
    groups = [list(values[start:end]) for start, end in zip(starts, [*starts[1:], len(values)], strict=True)]
    states = plain_state(combiner.add_groups(array, np.array(starts, np.int64)))
    if not isinstance(states, Sequence) or len(states) != len(groups):
        raise LawError(
            f"{combiner!r}: add_groups returns {states!r} for the {len(groups)} groups {groups}: it must return a "
            "sequence or an array with one state for each"
        )
    for group, state in zip(groups, states, strict=True):
        if (made := combiner.output(state)) != (expected := combiner.output(_one_by_one(combiner, group))):
            raise LawError(
                f"{combiner!r}: {group} among {groups} gives {made!r} by add_groups, and one by one {expected!r}: "
                "add_groups must return what add returns for the values of each group"
            )


def _one_by_one(combiner: OwnCombiner, values: Sequence[Any]) -> Any:
    state = combiner.zero()
    for value in values:
        state = combiner.add(state, value)
    return state
