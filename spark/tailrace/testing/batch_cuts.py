"""Try whether the result of a batch function for a record depends on the other records of the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from tailrace.engines.python.assigned import batch_windows
from tailrace.engines.python.batch_calls import outcomes
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.base.errors import RecordError, TailraceError
from tailrace.model.base.time import instant
from tailrace.model.definition.batch_steps import EachBatch
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.record_steps import taken_through
from tailrace.testing.given_records import shown
from tailrace.testing.orders import Records, read_records

if TYPE_CHECKING:
    from tailrace.model.definition.pipeline import Pipeline

TRIES = 30
"""The number of random orders and cuts that are tried."""

_Row: TypeAlias = Mapping[str, Any]


class BatchError(TailraceError, AssertionError):
    """The failure of a test: a batch function does not give what the function for one record, or another cut, gives."""


def check_batches(definition: Ranged, records: Records, *, tries: int = TRIES, seed: int = 0) -> None:
    """Check that the batch functions of a definition give the same for any order and cut of records.

    These are the functions of `EachBatch`, and `OwnWindows.assign_batch`, which must give the windows of `assign`.

    For each record, the result in a batch is compared with the result for the record alone: the new columns, or the
    reason of its rejection. Other steps are applied to the records in between. The orders and cuts are the same in each
    run; `seed` chooses others, and `tries` is their number.

    Raises `BatchError` with the record and both results.
    """
    __tracebackhide__ = True
    rows: list[_Row] = [read for _, _, read in read_records(definition, records)]
    types, chance = definition.log.columns, random.Random(seed)
    for place, step in enumerate(definition.each):
        if isinstance(step, EachBatch):
            alone = [outcomes(step, [row], types)[0] for row in rows]
            for batch in _batches(len(rows), chance, tries):
                together = outcomes(step, [rows[at] for at in batch], types)
                for at, found in zip(batch, together, strict=True):
                    if repr(found) != repr(alone[at]):
                        whole = f"{_said(found)} in a batch of {len(batch)} records, but {_said(alone[at])}"
                        raise BatchError(
                            f"{definition.name}: each[{place}] gives for {shown(rows[at])} {whole} for the record "
                            "alone: compute each row from its own record only"
                        )
        rows = [made for row in rows for made in taken_through([step], row, types).records]
        types = step.columns(types)
    if getattr(definition, "own_windows", False):
        _check_windows(cast("Pipeline", definition), rows, chance, tries)


def _check_windows(pipeline: Pipeline, rows: Sequence[_Row], chance: random.Random, tries: int) -> None:
    """Check that `assign_batch` of own windows gives the windows of `assign`, wherever it gives any."""
    at = pipeline.log.event_time
    for batch in _batches(len(rows), chance, tries):
        some = [rows[place] for place in batch]
        table = pa.Table.from_pylist(some, schema=arrow_schema(pipeline.columns))
        together = batch_windows(pipeline, table) if some else None
        if together is None:
            continue
        for row, found in zip(some, together.to_pylist(), strict=True):
            windows = [(one["window_start"], one["window_end"]) for one in found]
            alone: list[Any] | str
            try:
                alone = [tuple(window) for window in pipeline.windows_of(instant(row[at]), row)]
            except RecordError as error:
                alone = str(error)
            if windows != alone:
                where = type(pipeline.where).__name__
                raise BatchError(
                    f"{pipeline.name}: assign_batch of {where} gives for {shown(row)} {windows} in a batch of "
                    f"{len(batch)} records, but assign gives {alone}: give the same windows in both"
                )


def _batches(count: int, chance: random.Random, tries: int) -> Iterator[list[int]]:
    """Yield batches of places, which together are random orders and cuts; the first is the whole in its order."""
    places = list(range(count))
    yield places
    for _ in range(tries):
        left = chance.sample(places, count)
        while left:
            size = chance.randint(1, len(left))
            yield left[:size]
            left = left[size:]


def _said(outcome: tuple[Mapping[str, Any], str | None]) -> str:
    values, reason = outcome
    return str(dict(values)) if reason is None else f"a rejection ({reason})"
