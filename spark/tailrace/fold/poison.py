"""Find the records that make an epoch fail: the last resort of rule X7.

Known faults of records have other remedies: a step rejects the record, an accumulator holds the number, a result is
null. This is for unforeseen faults. An epoch that failed twice is folded again with parts of its records, without
publishing, until the records are found without which it can be folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.upkeep.diagnosis import MachineError, diagnose
from tailrace.model.base.errors import ClockError, TailraceError, line_of
from tailrace.model.base.types import is_type
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Panes
from tailrace.model.logs.log import PANE_TIME, PLACE

MOST = 20
"""The maximum number of an epoch's records that are set aside: if more fail, the records are not the cause."""

LARGEST = 1_000_000
"""The maximum number of records in an epoch that is folded in parts."""


Row = tuple[Any, ...]
"""The values of the columns that identify a record."""


class UnfoldableError(TailraceError, RuntimeError):
    """An epoch of a stage fails because of rows of another definition, which cannot be set aside."""


def identity_columns(definition: Definition) -> tuple[str, ...]:
    """Name the columns that identify the records that a definition reads.

    Records that may be taken back are identified by values: an answer by its key and window, with all its panes.
    """
    log = definition.log
    if isinstance(log, Panes):
        return (*log.of.key, *SPAN)
    if log.takes_back:
        return (*(name for name in definition.known_by if is_type(log.columns[name])), PANE_TIME)
    return PLACE


def unfoldable_error(definition: Definition, epoch: int, errors: Mapping[Row, Exception]) -> UnfoldableError:
    """Make the error of an epoch that fails because of rows that another definition may take back.

    Such rows are not set aside: a later retraction names only their values, and would be applied to a state without
    them.
    """
    names, name = identity_columns(definition), definition.name
    quotes = "; ".join(
        f"{', '.join(f'{one} = {value}' for one, value in zip(names, row, strict=True))} ({line_of(error)})"
        for row, error in list(errors.items())[:_QUOTED]
    )
    more = f"; and {len(errors) - _QUOTED:,} more" if len(errors) > _QUOTED else ""
    of, rows = definition.log.name, f"{len(errors):,} row{'' if len(errors) == 1 else 's'}"
    return UnfoldableError(
        f"{name} cannot fold epoch {epoch} for {rows} of {of}: {quotes}{more}. Records of a log would be set aside, "
        f"but not what another definition may take back. Mend the steps of {name} so that they take it (for example "
        "try_divide in SparkColumns) and make it so with `tailrace apply`; leave it out of the stream until then"
    )


_QUOTED = 3
"""The maximum number of rows that an error quotes."""


def may_be_of_records(error: Exception) -> bool:
    """Tell whether records may be the cause of an error.

    Errors of the lake, the machine and the clock have other causes.
    """
    return not isinstance(error, LakeError | MachineError | ClockError | OSError) and diagnose(error, None) is None


def find_poison(
    rows: pa.Table, failed: Callable[[pa.Table], Exception | None], by: Iterable[str] = PLACE
) -> dict[Row, Exception] | None:
    """Find the records without which `rows` can be folded, each with the error that it causes.

    Places, or other columns, identify the records. `failed` folds some of the records and returns the error, or None.
    Records that fail only together with others are found, too: each part is folded with the records that were good so
    far. Returns None where the records are not the cause: the epoch fails without any record, or more than `MOST` fail.
    """
    if rows.num_rows > LARGEST or failed(rows.slice(0, 0)) is not None:
        return None
    there = dict[Row, list[int]]()
    for number, row in enumerate(zip(*(rows[name].to_pylist() for name in by), strict=True)):
        there.setdefault(row, []).append(number)
    good, bad = list[int](), dict[Row, Exception]()
    waiting: list[Sequence[Row]] = [list(there)]
    while waiting:
        part = waiting.pop()
        own = [number for row in part for number in there[row]]
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
