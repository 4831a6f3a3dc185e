"""Find the records that make an epoch fail. This search is the last resort of rule X7.

Foreseen faults of records are handled elsewhere: a record is rejected, or the result of a window is null. This module
handles unforeseen faults. If an epoch has failed twice, parts of its records are folded, without publishing, until the
faulty records are found. Without these records, the epoch can be folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.upkeep.diagnosis import MachineError, diagnose
from tailrace.model.base.errors import ClockError, TailraceError, line_of
from tailrace.model.base.types import is_plain
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Panes
from tailrace.model.logs.log import PANE_TIME, PLACE

MOST = 20
"""The maximum number of records of one epoch that are set aside.

If more records fail, the cause of the failure is assumed to be something other than the records.
"""

LARGEST = 1_000_000
"""The maximum size, in records, of an epoch that is searched for faulty records."""


Row = tuple[Any, ...]
"""The values of the columns that identify one record."""


class UnfoldableError(TailraceError, RuntimeError):
    """The error for an epoch that fails because of rows of another definition. Such rows cannot be set aside."""


def identity_columns(definition: Definition) -> tuple[str, ...]:
    """Return the columns that identify the records that a definition reads.

    A record that may be retracted is identified by its values. An answer is identified by its key and window, so all
    panes of a window count as the same record.
    """
    log = definition.log
    if isinstance(log, Panes):
        return (*log.of.key, *SPAN)
    if log.takes_back:
        return (*(name for name in definition.known_by if is_plain(log.columns[name])), PANE_TIME)
    return PLACE


def unfoldable_error(definition: Definition, epoch: int, errors: Mapping[Row, Exception]) -> UnfoldableError:
    """Return the error for an epoch that fails because of rows that another definition may retract later.

    Such rows cannot be set aside: a later retraction would name only their values, and would be applied to a state that
    does not contain the rows.
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
"""The maximum number of rows that the error message quotes."""


def may_be_of_records(error: Exception) -> bool:
    """Return True if faulty records may be the cause of an error.

    Returns False for errors of the lake, of the machine and of the clock.
    """
    return not isinstance(error, LakeError | MachineError | ClockError | OSError) and diagnose(error, None) is None


def find_poison(
    rows: pa.Table, failed: Callable[[pa.Table], Exception | None], by: Iterable[str] = PLACE
) -> dict[Row, Exception] | None:
    """Find the faulty records in `rows`, and the error that each faulty record causes. All other records can be folded.

    `by` are the columns that identify a record. The function `failed` folds the records that are passed to it; it
    returns the error, or None if there is no error. Some records fail only together with other records. These records
    are found, too, because each part is folded together with all records that were good so far. Returns None if the
    records are not the cause: the epoch fails even without records, or more than `MOST` records fail.
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
