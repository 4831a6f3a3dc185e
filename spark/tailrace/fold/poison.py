"""Find the records with which an epoch cannot be folded: the last resort of rule X7.

What a record is known to do is mended where it does it: a step rejects it, an accumulator holds it, a result is null.
This is for what nobody foresaw. An epoch that failed twice is folded again with parts of its records, none of which is
published, until those are found without which it can be folded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.upkeep.diagnosis import MachineError, diagnosed
from tailrace.model.base.errors import ClockError
from tailrace.model.definition.record_steps import Place
from tailrace.model.logs.log import PLACE

MOST = 20
"""The maximum number of records of an epoch that are set aside: where more fail, something else is wrong."""

LARGEST = 1_000_000
"""The maximum number of records of an epoch that is folded in parts."""


def may_be_of_records(error: Exception) -> bool:
    """Tell whether an error may come of the records; those of the lake, the machine and the clock do not."""
    return not isinstance(error, LakeError | MachineError | ClockError | OSError) and diagnosed(error, None) is None


def line_of(error: Exception) -> str:
    """Write in one line what an error says first."""
    words = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {words}"


def found(rows: pa.Table, failed: Callable[[pa.Table], Exception | None]) -> dict[Place, Exception] | None:
    """Find the places without whose records `rows` can be folded, each with the error that it caused.

    `failed` folds some of the records and returns the error, None where there is none. Records that fail only together
    with others are found, too: each part is folded with what was good so far. Returns None where the records are not to
    blame, for the epoch fails without any, or more than `MOST` fail.
    """
    if rows.num_rows > LARGEST or failed(rows.slice(0, 0)) is not None:
        return None
    by_place = dict[Place, list[int]]()
    for row, place in enumerate(zip(*(rows[name].to_pylist() for name in PLACE), strict=True)):
        by_place.setdefault(Place(*place), []).append(row)
    good, bad = list[int](), dict[Place, Exception]()
    waiting: list[Sequence[Place]] = [list(by_place)]
    while waiting:
        part = waiting.pop()
        own = [row for place in part for row in by_place[place]]
        error = failed(rows.take(pa.array([*good, *own], pa.int64())))
        if error is None:
            good += own
        elif len(part) > 1:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
        elif len(bad) < MOST and may_be_of_records(error):
            bad[part[0]] = error
        else:
            return None
    return bad
