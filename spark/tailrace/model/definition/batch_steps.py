"""A step whose Python function computes the new columns of many records at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from tailrace.model.base.errors import RecordError
from tailrace.model.definition.record_steps import Each, Record

_CALLS = "tailrace.engines.python.batch_calls"
"""The module that calls such functions. It is named, not imported, because Arrow is no part of the standard library."""


@dataclass(frozen=True)
class EachBatch(Each):
    """A step that calls a Python function on Arrow tables of records to compute new columns.

    The function receives a `pyarrow.Table`, with a row for each record and the columns that `reads` names (by default
    all). It returns the new columns, in the same order of records: a mapping from each name in `gives` to an array or
    list, or a table of Arrow, pandas or Polars, which may also have the columns of its input. The function makes one
    row of each record: to drop records, give a truth value and use `keep`; to make several, give a list and use
    `Explode`.

    The law: the result for a record does not depend on the other records of the batch. Tailrace cuts batches as it
    likes, and a stream cuts them differently from a backfill; `tailrace.testing.check_batches` checks the law. If the
    function fails for a batch, or returns what does not fit, it is called again for halves of the batch. So only the
    records for which it fails alone are rejected, with its error as the reason.

    >>> step = EachBatch(lambda table: {"double": [2 * n for n in table["n"].to_pylist()]}, {"double": "bigint"}, "n")
    >>> step.records({"n": 4}, {"n": "bigint"})
    [{'n': 4, 'double': 8}]
    """

    function: Callable[[Any], Any]
    gives: Mapping[str, str]
    reads: str | Iterable[str] | None = None

    multiplies: ClassVar[bool] = False

    def records(self, record: Record, types: Mapping[str, str]) -> list[Record]:
        ((made, reason),) = import_module(_CALLS).outcomes(self, [record], types)
        if reason is not None:
            raise RecordError(reason)
        return [{**record, **made}]
