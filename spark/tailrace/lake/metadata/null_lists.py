"""Correct pyiceberg's reader of data files: it reads a null list of structs as an empty list.

Files that need pyiceberg's reader are those with deleted rows, and those with other nested columns than the table has.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import DataScan


@cache
def keep_null_lists() -> None:
    """Make pyiceberg's reader keep null lists.

    Call this function before a direct use of `ArrowScan`.
    """
    # This import is local because it also loads pandas.
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    read_list = ArrowProjectionVisitor.list

    def list_(self: Any, list_type: Any, lists: pa.Array | None, values: pa.Array | None) -> pa.Array | None:
        read = read_list(self, list_type, lists, values)
        if read is None or lists is None or not lists.null_count or read.null_count == lists.null_count:
            return read
        # The mask of a list must begin where its offsets begin.
        offsets = pc.add(read.offsets, 0)
        return type(read).from_arrays(offsets, read.values, type=read.type, mask=lists.is_null())

    ArrowProjectionVisitor.list = list_  # type: ignore[method-assign, assignment]


@cache
def correct_scans() -> None:
    """Make every scan of a table call `keep_null_lists` before it reads."""
    for name in ("to_arrow", "to_arrow_batch_reader"):
        setattr(DataScan, name, _after_correction(getattr(DataScan, name)))


def _after_correction(read: Any) -> Any:
    @wraps(read)
    def corrected(*given: Any, **options: Any) -> Any:
        keep_null_lists()
        return read(*given, **options)

    return corrected
