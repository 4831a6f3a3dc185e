"""Take the values of columns from the names of the folders of a record's file (`Log.folders`), for every format.

The model defines the meaning (`JsonRecords.add_folders`): a record with another value than its folder is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.plain_columns import Mask, as_numbers, schema_of
from tailrace.model.logs.json_records import JsonRecords


@dataclass(frozen=True)
class FolderValues:
    """The columns of a log that have values of folders, and a mask of the records that do not fit their folder."""

    columns: Mapping[str, pa.Array]
    misfits: Mask

    @classmethod
    def of(cls, records: JsonRecords, own: Mapping[str, pa.Array], sources: pa.Array) -> FolderValues:
        """Take the values from the names of the records' files; `own` has the values in the records themselves."""
        columns, misfits = dict[str, pa.Array](), np.zeros(len(sources), np.bool_)
        if not records.log.folders:
            return cls(columns, misfits)
        schema, coded = schema_of(records.log), sources.dictionary_encode()
        found = [records.folder_values(source) for source in coded.dictionary.to_pylist()]
        misfits |= np.array([isinstance(one, str) for one in found], np.bool_)[coded.indices.to_numpy()]
        for name in records.log.folders:
            given = [None if isinstance(one, str) else one[name] for one in found]
            values = pa.array(given, schema.field(name).type).take(coded.indices)
            differs = pc.fill_null(pc.not_equal(values, own[name]), False)
            misfits |= differs.to_numpy(zero_copy_only=False)
            columns[name] = pc.coalesce(values, own[name])
        return cls(columns, misfits)


def folder_reasons(records: JsonRecords, own: Mapping[str, pa.Array], source: str, misfits: Mask) -> dict[int, str]:
    """Return the reasons for rejecting records of a file that do not fit their folder, by their indexes."""
    rows = np.flatnonzero(misfits)
    some = {name: pa.chunked_array([own[name].take(pa.array(rows))]) for name in records.log.folders}
    given = pa.table({name: as_numbers(values) for name, values in some.items()}).to_pylist()
    reasons = (records.add_folders(values, source) for values in given)
    return {row: reason for row, reason in zip(rows.tolist(), reasons, strict=True) if reason is not None}
